"""The scikit-learn estimator in a pipeline, a cross-validation and a grid search.

All columns lie in one matrix here, and the estimator gives each simulated party its own. That is research: it measures
what a federation would learn before anyone federates. Run it with `python examples/cross_validation.py`.
"""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

import colonnade as cn


def main() -> None:
    columns, diagnosis = load_breast_cancer(return_X_y=True)
    model = make_pipeline(
        QuantileTransformer(n_quantiles=100),
        cn.VerticalClassifier(
            {"hospital": list(range(10)), "laboratory": list(range(10, 30))},
            label_holder="hospital",
            epochs=8,
            random_state=0,
        ),
    )

    folds = cross_val_score(model, columns, diagnosis, cv=3, scoring="roc_auc")
    print("AUC by fold:", ", ".join(f"{score:.3f}" for score in folds))

    search = GridSearchCV(model, {"verticalclassifier__cut_width": [2, 8]}, cv=3, scoring="roc_auc")
    search.fit(columns, diagnosis)
    print(f"Best cut width: {search.best_params_['verticalclassifier__cut_width']}")

    run = search.best_estimator_.named_steps["verticalclassifier"].run_
    for party in run.plan.parties:
        print(f"{party} sent {run.bytes_sent(party)} bytes while the best model was trained")


if __name__ == "__main__":
    main()
