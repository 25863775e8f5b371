"""Predictions without how sure they are, for a party that may know no more; and how many of them it may ask for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import LabelEncoder
from colonnade.errors import PolicyRefused, WrongContent
from colonnade.session import Channel, EventLog, Scores, Session

__all__ = ["allow_rows", "checked_answer", "decided", "decided_by", "described", "predictions", "told"]

Numbers = npt.NDArray[np.float64]

_MOST_ROWS = 2**31
# Predicted numbers are rounded to this part of a standard deviation: exact ones would give the model away.
_ROUNDING = 16.0


def allow_rows(session: Session, partner: str, count: int, *limits: int | None) -> None:
    """Refuse more rows than the settings or this party's policy allow within a day, and write down the others."""
    if not 1 <= count <= _MOST_ROWS:
        raise WrongContent(f"'{partner}' announces rows to score, but not 1 to {_MOST_ROWS} of them.")
    known = [one for one in (*limits, session.policy.predictions_per_day) if one is not None]
    log, now = EventLog(session.queries), datetime.now(UTC)
    with log.held():
        used = sum(_rows_within_a_day(line, partner, now) for line in log.lines())
        if known and used + count > min(known):
            log.add("refused", partner=partner, rows=count)
            raise PolicyRefused(
                f"'{session.party}' scores at most {min(known)} rows for '{partner}' within 24 hours; {used} were "
                f"scored and {count} more were asked for. Many answers give away how rows are scored. Ask for fewer, "
                "or later; the limit is config.predictions_per_day, or policy.predictions_per_day where that is lower."
            )
        log.add("scored", partner=partner, rows=count)


def decided(labels: LabelEncoder, scores: Numbers) -> np.ndarray[Any, Any]:
    """Return class numbers, or numbers in the label's own units, rounded."""
    found = decided_by(labels.task, scores)
    return labels.decode(found) if labels.task == "regression" else found


def decided_by(task: str, scores: Numbers) -> np.ndarray[Any, Any]:
    """Return class numbers, or standardised numbers, rounded."""
    if task == "regression":
        return np.asarray(np.rint(scores[:, 0] * _ROUNDING) / _ROUNDING)
    if task == "multiclass":
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)
    return (scores[:, 0] >= 0).astype(np.int64)


def described(labels: LabelEncoder) -> str:
    """Say what the labels are, for the party that gets them."""
    return json.dumps({"task": labels.task, "classes": list(labels.classes)})


def told(answer: Any, peer: Channel) -> Scores:
    """Read the answer of a partner, which may say anything."""
    try:
        about = json.loads(answer.labels)
        task, classes = about["task"], tuple(about["classes"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongContent(f"'{peer.peer}' describes its labels in a way no version of colonnade does.") from None
    if task not in ("binary", "multiclass", "regression"):
        raise WrongContent(f"'{peer.peer}' sent predictions of a kind no version of colonnade knows.")
    return predictions(task, checked_answer(task, answer.values, len(classes), peer), classes)


def checked_answer(task: str, values: np.ndarray[Any, Any], classes: int, peer: Channel) -> np.ndarray[Any, Any]:
    """Return predictions that fit the task, or refuse them."""
    if values.dtype != (np.float64 if task == "regression" else np.int64):
        raise WrongContent(f"'{peer.peer}' sent predictions of another kind than the task has.")
    if task != "regression" and not np.isin(values, np.arange(classes)).all():
        raise WrongContent(f"'{peer.peer}' sent class numbers beyond the {classes} classes.")
    return values


def predictions(task: str, values: np.ndarray[Any, Any], classes: tuple[Any, ...]) -> Scores:
    """Return predictions as scores that are already decided."""
    return Scores(task, np.arange(len(values)), values, classes=classes, is_decided=True)


def _rows_within_a_day(line: dict[str, Any] | None, partner: str, now: datetime) -> int:
    if line is None or line.get("event") != "scored" or line.get("partner") != partner:
        return 0
    try:
        is_recent = now - datetime.fromisoformat(line["time"]) < timedelta(days=1)
        return int(line["rows"]) if is_recent else 0
    except (KeyError, TypeError, ValueError):
        return 0
