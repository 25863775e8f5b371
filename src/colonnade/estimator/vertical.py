"""Classifier and regressor, whose training and scoring are simulated runs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from reprlib import repr as short
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import check_scoring
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from colonnade.data import Kind
from colonnade.errors import ConfigError, UsageError, did_you_mean
from colonnade.estimator.matrix import Labels, ReadAs, assigned_columns, refuse_sparse, signs_of_an_encoder, tables_of
from colonnade.launch.run import Run
from colonnade.launch.simulation import Launch, simulate
from colonnade.methods import METHODS, method_for
from colonnade.methods.splitnn import SplitNN
from colonnade.session import PROBABILITY, Alignment, Evaluate, Method
from colonnade.settings import validated

__all__ = ["VerticalClassifier", "VerticalRegressor"]

_Matrix = np.ndarray[Any, Any]

# In double precision a row's score does not depend on the rows beside it.
_USUAL = SplitNN(precision="float64", secret_start=False)
_NESTED = "method__"
# What an error of the run calls a setting, and what the estimator does.
_NAMES_HERE = {" in [config]": " of the method", "config.": "{}", "evaluate.": "", "run.seed": "random_state"}


class _VerticalEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    parties: Mapping[str, Sequence[Hashable]] | None
    method: Any
    label_holder: str | None
    roles: Mapping[str, str | Sequence[str]] | None
    validation_fraction: float
    random_state: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags

    # A method's settings are a frozen dataclass. To scikit-learn it looks like an estimator within this one.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters; ``deep`` also the method's settings, as ``method__epochs``."""
        found: dict[str, Any] = super().get_params(deep)
        config = self._config
        if deep and _is_configuration(config):
            found |= {f"{_NESTED}{one.name}": getattr(config, one.name) for one in dataclasses.fields(config)}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings of the method by names such as ``method__epochs``."""
        nested = {name.removeprefix(_NESTED): params.pop(name) for name in list(params) if name.startswith(_NESTED)}
        super().set_params(**params)
        if nested:
            with _value_errors(_NESTED):
                document = _document(self._config) | {name: _plain(value) for name, value in nested.items()}
                self.method = validated(type(self._config), document, "config")
        return self

    @property
    def _config(self) -> Any:
        return _USUAL if self.method is None else self.method

    def _checked(self, matrix: Any, target: Any, **checks: Any) -> tuple[pd.DataFrame, _Matrix]:
        """Return the matrix as a frame, and the target as an array."""
        refuse_sparse(matrix)
        self._takes_frame = isinstance(matrix, pd.DataFrame)
        if not isinstance(matrix, pd.DataFrame):
            values, target = validate_data(
                self, matrix, target, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, **checks
            )
            return self._framed(values), target
        validate_data(self, matrix, target, skip_check_array=True)
        if not matrix.shape[1]:
            raise ValueError("The DataFrame has no columns. Pass the columns that parties have.")
        # The target alone: what cells may hold, the parties' tables say.
        _, target = check_X_y(np.zeros((len(matrix), 1)), target, estimator=self, ensure_min_samples=2, **checks)
        return self._framed(matrix), target

    def _framed(self, matrix: Any) -> pd.DataFrame:
        """Return a frame whose columns have the names that were there in `fit`, or are called by their places."""
        names = getattr(self, "feature_names_in_", None)
        frame = pd.DataFrame(matrix)
        called = [f"column {place}" for place in range(frame.shape[1])] if names is None else list(names)
        return frame.set_axis(called, axis=1)

    def _train(
        self,
        frame: pd.DataFrame,
        values: _Matrix,
        task: str,
        *,
        kind: Kind | None,
        positive: Any = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Give every party its columns, and train on labels of this kind with these settings of the method."""
        self.columns_ = assigned_columns(
            self.parties, list(getattr(self, "feature_names_in_", [])), self.n_features_in_
        )
        self.label_holder_ = next(iter(self.columns_)) if self.label_holder is None else str(self.label_holder)
        if self.label_holder_ not in self.columns_:
            raise ValueError(
                f"label_holder='{self.label_holder_}' is not one of the parties. "
                f"{did_you_mean(self.label_holder_, self.columns_)}"
            )
        signs = signs_of_an_encoder(frame)
        if signs:
            warnings.warn(signs, UserWarning, stacklevel=3)
        with _value_errors("method.", signs):
            tables = tables_of(
                frame,
                self.columns_,
                read_as=None if self._takes_frame else self._as_numbers(frame),
                labels=Labels(self.label_holder_, values, kind, positive),
            )
            # A party may have nothing but constant columns in a small sample; it then has nothing to bring.
            useful = {
                party: table
                for party, table in tables.items()
                if party == self.label_holder_ or any(column.distinct > 1 for column in table.columns)
            }
            config = self._configured(task, settings or {})
            fractions = {"test_fraction": 0.0, "validation_fraction": _plain(self.validation_fraction)}
            rows: Evaluate = validated(Evaluate, fractions, "evaluate")
            seed = int(check_random_state(self.random_state).randint(2**31))
            # The rows of one matrix are matched already; there is nobody to hide them from.
            given = Alignment(protocol="given")
            self.run_: Run = simulate(
                config,
                useful,
                roles=self._roles(method_for(config), list(useful)),
                seed=seed,
                evaluate=rows,
                launch=Launch(name=type(self).__name__, alignment=given),
            )
            self._read_as = {party: ReadAs.of(table) for party, table in tables.items()}

    def _as_numbers(self, frame: pd.DataFrame) -> dict[str, ReadAs]:
        return {party: ReadAs({frame.columns[one]: "numeric" for one in own}) for party, own in self.columns_.items()}

    def _configured(self, task: str, settings: Mapping[str, Any]) -> Any:
        """Return the method's settings for this task, after the same checks that a run file goes through."""
        document = _document(self._config)
        _refuse_more_than_a_matrix(method_for(self._config), type(self._config).__name__)
        if document.get("task", "auto") not in ("auto", task):
            raise ConfigError(f"What is learned here is {task}, and config.task says otherwise. Leave it out.")
        # All parties are threads here: there is nobody to hide first weights from, and random_state repeats.
        for name, value in {"task": task, "secret_start": False, **settings}.items():
            if name in document:
                document[name] = value
            elif name in settings:
                having = [one.config.__name__ for one in METHODS if hasattr(one.config, name)]
                raise ConfigError(
                    f"{type(self._config).__name__} has no {name}. Leave {name} out, or use {' or '.join(having)}."
                )
        return validated(type(self._config), document, "config")

    def _roles(self, method: Method, parties: list[str]) -> dict[str, tuple[str, ...]]:
        """Return who plays what: as given, and for the rest the label holder, those with columns, and helpers."""
        given = {role: (one,) if isinstance(one, str) else tuple(one) for role, one in (self.roles or {}).items()}
        rest = [party for party in parties if not any(party in named for named in given.values())]
        usual = next((role.name for role in method.roles if role.has_rows and not role.has_label), None)
        roles = {}
        for role in method.roles:
            own = given.pop(role.name, ())
            if role.has_rows:
                # A party whose columns are all constant takes no part.
                own = tuple(one for one in own if one in parties or one not in self.columns_)
            elif role.at_least and not own:
                own = (role.name,)
            if role.has_label:
                own += tuple(one for one in rest if one == self.label_holder_)
            elif role.name == usual:
                own += tuple(one for one in rest if one != self.label_holder_)
            if own:
                roles[role.name] = own
        return roles | given

    def _score(self, matrix: Any) -> pd.DataFrame:
        """Return the run's scores, in the order of the matrix's rows."""
        check_is_fitted(self)
        refuse_sparse(matrix)
        if self._takes_frame and isinstance(matrix, pd.DataFrame):
            values = validate_data(self, matrix, reset=False, skip_check_array=True)
        else:
            values = validate_data(self, matrix, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        method, plan = self.run_.method, self.run_.plan
        bringing = method.parties_with_rows(method.in_stage(plan, "predict"))
        with _value_errors("method."):
            columns = {party: self.columns_[party] for party in bringing}
            tables = tables_of(self._framed(values), columns, read_as=self._read_as)
            scores = self.run_.predict(tables)
        return scores.set_index(next(iter(tables.values())).id_column).sort_index()

    def party_importance(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        scoring: Any = None,
        n_repeats: int = 5,
        random_state: Any = None,
    ) -> pd.DataFrame:
        """Return what each party's columns are worth: how far a score falls when they are shuffled, by party.

        All columns of a party are shuffled together, so that they stay a row's own and only belong to another row.
        ``X`` and ``y`` are rows that were held out. ``scoring`` is what scikit-learn takes, such as "roc_auc"; without
        it, what `score` gives. ``mean`` and ``deviation`` are of ``n_repeats`` shuffles, in that score's units.
        """
        check_is_fitted(self)
        if n_repeats < 1:
            raise ValueError(f"n_repeats must be at least 1. Got {n_repeats} instead.")
        score, draws = check_scoring(self, scoring), check_random_state(random_state)
        whole = score(self, X, y)
        lost = {
            party: [whole - score(self, _shuffled(X, own, draws.permutation(len(y))), y) for _ in range(n_repeats)]
            for party, own in self.columns_.items()
        }
        rows = [(party, np.mean(one), np.std(one)) for party, one in lost.items()]
        return pd.DataFrame(rows, columns=["party", "mean", "deviation"]).set_index("party")


@contextmanager
def _value_errors(settings: str, more: str = "") -> Iterator[None]:
    """Turn our errors into ValueError, which scikit-learn's tools know as the sign of bad input, in its names."""
    try:
        yield
    except UsageError as error:
        message = str(error)
        for there, here in _NAMES_HERE.items():
            message = message.replace(there, here.format(settings))
        raise ValueError(" ".join(filter(None, [message, more]))) from error


def _refuse_more_than_a_matrix(method: Method, settings: str) -> None:
    """Refuse a method whose run is more than matched columns of one label holder and others."""
    labelled = [role.name for role in method.roles if role.has_label]
    reason = ""
    if method.predicting.rows_of is not None:
        reason = f"scores rows of the role {method.predicting.rows_of}, which has no labels"
    elif len(labelled) != 1:
        reason = f"learns from tables of different rows, as the roles {' and '.join(labelled)} each bring labels"
    if reason:
        raise ConfigError(
            f"The method {method.name} {reason}, so that one matrix cannot stand for its parties. Call "
            f"cn.simulate({settings}(…), {{'party': cn.PartyTable(…), …}}, roles={{…}}) with a table for each, or use "
            "another method here, such as SplitNN()."
        )


def _is_configuration(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _document(config: Any) -> dict[str, Any]:
    """Return settings as `validated` takes them, after which every one of them was checked."""
    if not _is_configuration(config):
        given = f"the class {config.__name__}" if isinstance(config, type) else short(config)
        raise ConfigError(f"method must be the configuration of a method, such as SplitNN(). Got {given} instead.")
    return {one.name: _plain(getattr(config, one.name)) for one in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    """Return numpy's numbers and arrays, which a parameter search may draw, as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if _is_configuration(value):
        return dataclasses.asdict(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _shuffled(matrix: Any, columns: Sequence[int], order: _Matrix) -> Any:
    """Return a copy in which some columns are those of other rows."""
    if isinstance(matrix, pd.DataFrame):
        frame = matrix.copy()
        for column in columns:
            frame.isetitem(column, matrix.iloc[order, column].array)
        return frame
    copy = np.array(matrix)
    copy[:, columns] = copy[order][:, columns]
    return copy


class VerticalClassifier(ClassifierMixin, _VerticalEstimator):  # type: ignore[misc]
    """Classify with a model whose columns lie at several parties, by simulating their run.

    ``X`` is a DataFrame as it is, with texts, dates, booleans and gaps, or an array of numbers. ``parties`` maps party
    names to column names or positions; without it the matrix is cut in two halves. ``label_holder`` is the party that
    has the labels, by default the first.

    ``method`` is the configuration of a method in which one party has labels and all share their rows; by default it is
    `SplitNN()` in double precision. Its settings are parameters too: ``method__epochs``. Whether first weights are
    secret has no meaning here. ``roles`` says who plays a role that columns do not tell, as in `simulate`; parties
    without a table need not be named. ``class_weights`` is "balanced" or a weight by class, for methods that have it.
    ``positive`` is the class that the run's scores are named by, by default the second; ``classes_`` is sorted in any
    case. ``validation_fraction`` of the rows decide when training stops and which model serves.

    After `fit`, ``run_`` is the simulated run with its ledgers.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> method = SplitNN(hidden=(16,), minimum_steps=200)
    >>> model = VerticalClassifier({"garden": [0, 1], "laboratory": [2, 3]}, method=method, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        parties: Mapping[str, Sequence[Hashable]] | None = None,
        *,
        method: Any = None,
        label_holder: str | None = None,
        roles: Mapping[str, str | Sequence[str]] | None = None,
        class_weights: str | Mapping[Any, float] | None = None,
        positive: Any = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.parties = parties
        self.method = method
        self.label_holder = label_holder
        self.roles = roles
        self.class_weights = class_weights
        self.positive = positive
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's names
        """Train on one matrix, each party seeing its columns only."""
        frame, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("The label has one class only; a classifier needs at least two classes.")
        # Whole numbers and booleans stay what they are, also where y has them as floats; all else are names.
        types = {"b": bool, "i": np.int64, "u": np.int64, "f": np.int64}
        is_named = self.classes_.dtype.kind not in types
        names = self.classes_.astype(str).astype(object)
        if not is_named:
            names = self.classes_.astype(types[self.classes_.dtype.kind])
        self._names = names.tolist()
        order, positive = list(range(len(names))), None
        if len(names) == 2:
            self._positive = self._place_of(self.classes_[1] if self.positive is None else self.positive)
            order, positive = [1 - self._positive, self._positive], self._names[self._positive]
        elif self.positive is not None:
            raise ValueError(f"positive is for two classes, and there are {len(names)}. Leave it out.")
        self._train(
            frame,
            names[codes],
            "binary" if len(names) == 2 else "multiclass",
            kind="categorical" if is_named else None,
            positive=positive,
            settings={} if self.class_weights is None else {"class_weights": self._weights(order)},
        )
        return self

    def _place_of(self, name: Any) -> int:
        places = [place for place, one in enumerate(self.classes_) if one == name]
        if not places:
            raise ValueError(f"{name!r} is not one of the {len(self.classes_)} classes. Check how the label spells it.")
        return places[0]

    def _weights(self, order: list[int]) -> Any:
        """Return weights in the order in which the method has the classes."""
        if not isinstance(self.class_weights, Mapping):
            return _plain(self.class_weights)
        given = {self._place_of(name): _plain(weight) for name, weight in self.class_weights.items()}
        if len(given) < len(self.classes_):
            raise ValueError(f"class_weights has {len(given)} of {len(self.classes_)} classes. Give each its weight.")
        return [given[place] for place in order]

    def predict_proba(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the probability of every class, in the order of ``classes_``."""
        frame = self._score(X)
        if len(self.classes_) == 2:
            positive = frame[f"{PROBABILITY}{self._names[self._positive]}"].to_numpy()
            pair = [1.0 - positive, positive]
            return np.column_stack(pair if self._positive == 1 else pair[::-1])
        return frame[[f"{PROBABILITY}{name}" for name in self._names]].to_numpy()

    def decision_function(self, X: Any) -> _Matrix:  # noqa: N803
        """Return log-odds of the second class, or log-probabilities of all classes."""
        floor = np.finfo(np.float64).tiny
        logs = np.log(np.maximum(self.predict_proba(X), floor))
        return np.asarray(logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs)

    def predict(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the most probable class."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


class VerticalRegressor(RegressorMixin, _VerticalEstimator):  # type: ignore[misc]
    """Predict numbers with a model whose columns lie at several parties; see `VerticalClassifier`."""

    def __init__(
        self,
        parties: Mapping[str, Sequence[Hashable]] | None = None,
        *,
        method: Any = None,
        label_holder: str | None = None,
        roles: Mapping[str, str | Sequence[str]] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.parties = parties
        self.method = method
        self.label_holder = label_holder
        self.roles = roles
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on one matrix, each party seeing its columns only."""
        frame, y = self._checked(X, y, y_numeric=True)
        if len(np.unique(y)) < 2:
            raise ValueError("The target is constant, so there is nothing to learn.")
        self._train(frame, np.asarray(y, dtype=np.float64), "regression", kind="numeric")
        return self

    def predict(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the predicted numbers."""
        return self._score(X)["prediction"].to_numpy()
