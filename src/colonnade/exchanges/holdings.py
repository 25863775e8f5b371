"""What a party makes of its own table before anything is exchanged, and of scores after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError, TableError
from colonnade.session import ALIGN, Finding, Holding, ModelPart, RunPlan, Scores, Session

__all__ = [
    "encoded_columns",
    "encoded_labels",
    "first_seeds",
    "fit_labels",
    "known_start",
    "nobody_has_columns",
    "own_part",
    "scores_in_terms_of",
    "table_labels",
    "without_columns",
]

Rows = np.ndarray[Any, Any]


def encoded_columns(
    holding: Holding, dtype: npt.DTypeLike, minimum_support: int = 0
) -> tuple[TableEncoder | None, Rows | None]:
    """Fit the table's encoder on the training rows only, and encode all shared rows; None without usable columns."""
    if not holding.table.columns:
        return None, None
    positions = holding.aligned.positions
    encoder = TableEncoder.fit(holding.table, positions[holding.split.train], minimum_support=minimum_support)
    if encoder.width == 0:
        return None, None
    return encoder, encoder.transform(holding.table, positions, dtype=dtype)


def without_columns(session: Session) -> ConfigError:
    """Say that a party that should bring columns has none."""
    return ConfigError(
        f"'{session.party}' has no usable feature columns: it has none, or each is constant, or nearly, in its "
        "training rows. Check its table and its drop list, or leave this party out."
    )


def nobody_has_columns() -> ConfigError:
    """Say that no party of a run has columns."""
    return ConfigError(
        "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
    )


def known_start(plan: RunPlan, consequence: str) -> Iterator[str]:
    """Warn of first weights that follow from the run's seed, in a stage that learns."""
    if not plan.config["secret_start"] and plan.stage not in ("predict", ALIGN):
        yield (
            "Known start: first weights follow from the run's seed, which all parties know (secret_start = false). "
            f"{consequence} For research only."
        )


def first_seeds(session: Session, is_secret: bool) -> Callable[..., int]:
    """Return what gives seeds that no other party can derive, or, for runs that must repeat, those of the run's seed.

    Who knows a network's first weights can work out columns from the first numbers that cross.
    """
    if not is_secret:
        return session.own_seed

    def seed(purpose: str, counter: int = 0) -> int:
        # All 256 bits, and one more that tells it from a seed of the run's: see `colonnade.nn.draws.reseed`.
        return int.from_bytes(session.secret(f"seed/{purpose}/{counter}"), "little") | 1 << 256

    return seed


def encoded_labels(session: Session, holding: Holding, task: str) -> tuple[Rows, LabelEncoder]:
    """Return the labels of all shared rows, and their encoder."""
    positions, split = holding.aligned.positions, holding.split
    held_out = np.concatenate([split.validation, split.test])
    encoder = fit_labels(session, holding, task, positions[split.train], positions[held_out])
    return table_labels(session, holding)[positions], encoder


def table_labels(session: Session, holding: Holding) -> Rows:
    """Return the labels of all rows of this party's table."""
    if holding.table.labels is None:
        role = session.role.replace("_", " ")
        raise ConfigError(f"'{session.party}' is a {role} but its table has no label column. Set label = ….")
    return holding.table.labels


def fit_labels(session: Session, holding: Holding, task: str, learned: Rows, held_out: Rows) -> LabelEncoder:
    """Fit on all labels of this party's table; the rows to learn from and those to judge by are places in it.

    A class without rows to learn from is no reason to refuse a table: what that means is said beside the model.
    """
    labels = table_labels(session, holding)
    encoder = LabelEncoder.of(holding.table, task, learned)
    if encoder.task == "regression":
        return encoder
    known, judged = encoder.encode(labels[learned]), encoder.encode(labels[held_out])
    count = len(np.union1d(known, judged))
    if count < 2:
        raise TableError(
            f"The {len(known) + len(judged)} rows of '{session.party}' that take part have labels of {count} of the "
            f"table's {len(encoder.classes)} classes. A model needs two: bring rows of other classes to the overlap."
        )
    lost = np.setdiff1d(judged, known)
    if len(lost):
        rows = int(np.isin(judged, lost).sum())
        session.findings.append(
            Finding(
                name="classes without training rows",
                title="Classes that could not be learned",
                text=f"All rows of {len(lost)} of {count} classes are held out: the model cannot tell these, and "
                f"{rows} of {len(judged)} held-out rows are of them. Hold out fewer rows (evaluate.test_fraction, "
                "evaluate.validation_fraction), choose another run.seed, or bring more rows of rare classes.",
                values={"classes": len(lost), "rows": rows},
            )
        )
    return encoder


def scores_in_terms_of(labels: LabelEncoder, values: Rows, rows: Rows, truth: Any = None) -> Scores:
    """Return scores in the label's own terms, with the truth beside them where it is known."""
    if labels.task == "regression":
        values = labels.decode(values)
        known = None if truth is None else np.asarray(truth, dtype=np.float64)
    else:
        known = None if truth is None else labels.encode(truth).astype(np.int64)
    return Scores(labels.task, rows, values, known, labels.classes)


def own_part(session: Session, holding: Holding) -> ModelPart:
    """Return this party's part of a trained model."""
    if holding.part is None:
        raise ConfigError(f"'{session.party}' has no trained part of this model. Train first, then predict.")
    return holding.part
