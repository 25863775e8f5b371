"""What the label holder learns from its own columns only: the model that the federated one is compared with.

Nothing crosses. A penalised regression (linear, logistic or multinomial) and a forest of trees are fitted on the
training rows. Rows that neither has learned from decide, by the rule of `choose`, whether one of them or their average
is taken: the regression is best where rows are few, the forest where columns act together or bend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import CheckpointBroken, UsageError
from colonnade.training.choice import Choice, Numbers, choose, row_losses

if TYPE_CHECKING:
    import torch

__all__ = ["Alone"]

Task: TypeAlias = Literal["binary", "multiclass", "regression"]
Whole: TypeAlias = npt.NDArray[np.int32]
Small: TypeAlias = npt.NDArray[np.float32]

# Half of it times the squared coefficients is added to the mean loss.
_PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
_FOLDS = 5
_TREES = 100
# A leaf has so many rows at least, and of many rows this part, which keeps the trees small.
_FEWEST_ROWS_OF_A_LEAF = 3
_ROWS_PER_ROW_OF_A_LEAF = 2_000
# More rows than these hardly change which penalty or model is best, or what a tree says, and take long.
_MOST_ROWS_COMPARED = 4_000
_MOST_ROWS_OF_TREES = 20_000
# Rows that go down the trees at once.
_PART = 8_192


@dataclass(frozen=True)
class _Linear:
    """Scores that are linear in the columns, before a sigmoid or softmax."""

    coefficients: Numbers
    intercepts: Numbers

    @classmethod
    def fit(cls, task: Task, columns: Numbers, targets: Numbers, classes: int, penalty: float) -> _Linear:
        if task == "regression":
            means, level = columns.mean(axis=0), float(targets.mean())
            centred = columns - means
            gram = centred.T @ centred / len(centred) + penalty * np.eye(columns.shape[1])
            slopes = np.linalg.solve(gram, centred.T @ (targets - level) / len(centred))
            return cls(slopes[:, None], np.array([level - means @ slopes]))
        return cls._fit_classes(columns, _one_hot(task, targets, classes), penalty)

    @classmethod
    def _fit_classes(cls, columns: Numbers, wanted: Numbers, penalty: float) -> _Linear:
        from scipy.optimize import minimize  # type: ignore[import-untyped]
        from scipy.special import logsumexp  # type: ignore[import-untyped]

        rows, outputs = wanted.shape
        shape = (columns.shape[1] + 1, outputs)

        def objective(flat: Numbers) -> tuple[float, Numbers]:
            weights = flat.reshape(shape)
            linear = columns @ weights[:-1] + weights[-1]
            if outputs == 1:
                losses, chances = np.logaddexp(0.0, linear), _chances("binary", linear)[:, None]
            else:
                losses, chances = logsumexp(linear, axis=1), _chances("multiclass", linear)
            residuals = (chances - wanted) / rows
            slopes = np.vstack([columns.T @ residuals, residuals.sum(axis=0)]) + scale * weights
            mean = (losses.sum() - (wanted * linear).sum()) / rows
            return float(mean + (scale * weights**2).sum() / 2), slopes.ravel()

        scale = np.full((shape[0], 1), penalty)
        # Without any, the intercept of a class that has no row would fall for ever.
        scale[-1] = 1e-6
        found = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
        weights = found.x.reshape(shape)
        return cls(weights[:-1], weights[-1])

    def scores(self, task: Task, columns: Numbers) -> Numbers:
        return _chances(task, columns @ self.coefficients + self.intercepts)


@dataclass(frozen=True)
class _Forest:
    """Trees as arrays, one after another; a leaf is its own child on both sides."""

    roots: Whole
    features: Whole
    thresholds: Numbers
    children: Whole
    values: Small

    @classmethod
    def fit(cls, task: Task, columns: Numbers, targets: Numbers, classes: int, seed: int) -> tuple[_Forest, Numbers]:
        """Return the forest, and the scores of its rows by the trees that have not learned from them."""
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        settings = {
            "n_estimators": _TREES,
            "min_samples_leaf": max(_FEWEST_ROWS_OF_A_LEAF, len(targets) // _ROWS_PER_ROW_OF_A_LEAF),
            "oob_score": True,
            "random_state": seed,
        }
        if task == "regression":
            model = RandomForestRegressor(max_features=1 / 3, **settings).fit(columns, targets)
            present, unseen = np.arange(1), model.oob_prediction_[:, None]
        else:
            model = RandomForestClassifier(**settings).fit(columns, targets.astype(np.int64))
            present, unseen = model.classes_, model.oob_decision_function_
        width = 1 if task == "regression" else classes
        trees = [one.tree_ for one in model.estimators_]
        roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
        children, values = [], []
        for root, tree in zip(roots, trees, strict=True):
            pair = np.stack([tree.children_left, tree.children_right], axis=1)
            children.append(root + np.where(pair < 0, np.arange(tree.node_count)[:, None], pair))
            values.append(_placed(tree.value[:, 0, :], present, width))
        forest = cls(
            roots=roots.astype(np.int32),
            features=np.concatenate([tree.feature for tree in trees]).clip(0).astype(np.int32),
            thresholds=np.concatenate([tree.threshold for tree in trees]),
            children=np.concatenate(children).astype(np.int32),
            values=np.concatenate(values).astype(np.float32),
        )
        return forest, _in_form(task, _placed(unseen, present, width))

    def scores(self, task: Task, columns: Numbers) -> Numbers:
        parts = np.array_split(columns, range(_PART, len(columns), _PART))
        return _in_form(task, np.concatenate([self._mean(part.astype(np.float32)) for part in parts]))

    def _mean(self, columns: Small) -> Numbers:
        """Return the mean of all trees; scikit-learn compares columns as float32, too."""
        rows, total = np.arange(len(columns)), np.zeros((len(columns), self.values.shape[1]))
        for root in self.roots:
            node, above = np.full(len(rows), root), np.full(len(rows), -1)
            while not np.array_equal(node, above):
                is_right = columns[rows, self.features[node]] > self.thresholds[node]
                node, above = self.children[node, is_right.astype(np.int64)], node
            total += self.values[node]
        return total / len(self.roots)


@dataclass(frozen=True)
class Alone:
    """A model of one party's own columns, fitted without any message."""

    task: Task
    choice: Choice
    models: Mapping[str, _Linear | _Forest]

    @classmethod
    def fit(cls, task: Task, columns: Numbers, targets: Numbers, classes: int, seed: int) -> Alone:
        """Fit on training rows: encoded columns, and class numbers or standardised labels.

        ``classes`` is how many there are, also where some have no training row; a regression has none.
        """
        columns, targets = np.asarray(columns, np.float64), np.asarray(targets, np.float64)
        if columns.ndim != 2 or targets.shape != columns.shape[:1] or len(columns) < 2 or not columns.size:
            raise UsageError(
                f"Columns of shape {columns.shape} and {targets.size} targets leave nothing to learn from."
            )
        order = np.random.default_rng(seed).permutation(len(targets))
        compared, grown = order[:_MOST_ROWS_COMPARED], order[:_MOST_ROWS_OF_TREES]
        penalty, linear_scores = _best_penalty(task, columns[compared], targets[compared], classes)
        forest, forest_scores = _Forest.fit(task, columns[grown], targets[grown], classes, seed % 2**32)
        unseen = {"regression": linear_scores, "forest": forest_scores[: len(compared)]}
        choice = choose(task, targets[compared], unseen, rows_are="training rows left out in turn")
        models: dict[str, _Linear | _Forest] = {"forest": forest}
        if choice.weights["regression"]:
            models["regression"] = _Linear.fit(task, columns, targets, classes, penalty)
        return cls(task, choice, {name: model for name, model in models.items() if choice.weights[name]})

    def scores(self, columns: Numbers) -> Numbers:
        """Return the probability of the second class, class probabilities, or standardised predictions."""
        values = np.asarray(columns, np.float64)
        return self.choice.served({name: model.scores(self.task, values) for name, model in self.models.items()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all arrays by name, for a model part."""
        import torch

        return {
            f"{name}.{array}": torch.from_numpy(values)
            for name, model in self.models.items()
            for array, values in vars(model).items()
        }

    @property
    def document(self) -> dict[str, Any]:
        """Return what is not an array, for a model part."""
        return {"task": self.task, "choice": self.choice.to_json()}

    @classmethod
    def from_part(cls, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> Alone:
        """Return the model that `tensors` and `document` came from."""
        try:
            choice = Choice.from_json(document["choice"])
            models: dict[str, _Linear | _Forest] = {}
            for name, kind in (("regression", _Linear), ("forest", _Forest)):
                if choice.weights[name]:
                    arrays = {array: tensors[f"{name}.{array}"].numpy() for array in kind.__dataclass_fields__}
                    models[name] = kind(**arrays)
            return cls(document["task"], choice, models)
        except (KeyError, TypeError, UsageError):
            raise CheckpointBroken(
                "The model of own columns is not whole. Restore the model part or train again."
            ) from None


def _best_penalty(task: Task, columns: Numbers, targets: Numbers, classes: int) -> tuple[float, Numbers]:
    """Return the penalty with the least loss on rows left out in turn, and their scores."""
    fold = np.arange(len(targets)) % min(_FOLDS, len(targets))
    found = {}
    for penalty in _PENALTIES:
        scores = np.zeros((len(targets), classes) if task == "multiclass" else len(targets))
        for left_out in np.unique(fold):
            out = fold == left_out
            model = _Linear.fit(task, columns[~out], targets[~out], classes, penalty)
            scores[out] = model.scores(task, columns[out])
        found[penalty] = (float(row_losses(task, targets, scores).mean()), scores)
    best = min(found, key=lambda penalty: found[penalty][0])
    return best, found[best][1]


def _chances(task: Task, outputs: Numbers) -> Numbers:
    """Return probabilities, or the outputs themselves for a regression."""
    if task == "regression":
        return outputs[:, 0]
    if task == "binary":
        found: Numbers = 1 / (1 + np.exp(-outputs[:, 0].clip(-500, 500)))
        return found
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares: Numbers = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _one_hot(task: Task, targets: Numbers, classes: int) -> Numbers:
    return targets[:, None] if task == "binary" else np.eye(classes)[targets.astype(np.int64)]


def _placed(values: Numbers, present: npt.NDArray[np.int64], width: int) -> Numbers:
    """Return the columns of classes that occur at their places among all."""
    whole = np.zeros((len(values), width))
    whole[:, present] = values
    return whole


def _in_form(task: Task, values: Numbers) -> Numbers:
    return values if task == "multiclass" else values[:, -1]
