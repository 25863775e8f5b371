"""The scikit-learn estimator in a cross-validation and a grid search, and what each party is worth.

All columns lie in one matrix here, and the estimator gives each simulated party its own. That is research: it measures
what a federation would learn before anyone federates. Run it with `python examples/cross_validation.py`.
"""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split

import colonnade as cn


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, X_held_out, y, y_held_out = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    model = cn.VerticalClassifier(
        {"hospital": list(X.columns[:10]), "laboratory": list(X.columns[10:])},
        label_holder="hospital",
        method=cn.SplitNN(epochs=8, minimum_steps=100),
        random_state=0,
    )

    folds = cross_val_score(model, X, y, cv=3, scoring="roc_auc")
    print("AUC by fold:", ", ".join(f"{score:.3f}" for score in folds))

    search = GridSearchCV(model, {"method__cut_width": [8, 32]}, cv=3, scoring="roc_auc").fit(X, y)
    print(f"Best cut width: {search.best_params_['method__cut_width']}")

    best = search.best_estimator_
    worth = best.party_importance(X_held_out, y_held_out, scoring="roc_auc", random_state=0)
    for party, (mean, deviation) in worth.iterrows():
        print(f"{party}: AUC falls by {mean:.3f} ± {deviation:.3f} when its columns are shuffled")
        print(f"{party} sent {best.run_.bytes_sent(party)} bytes while the best model was trained")


if __name__ == "__main__":
    main()
