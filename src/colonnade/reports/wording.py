"""Numbers in human units, and the sentences the page computes from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from colonnade.metrics import Evaluation, Gain, headline_of, higher_is_better, interval
from colonnade.reports.record import RunRecord

__all__ = [
    "alone_name",
    "bytes_text",
    "data_parties",
    "difference",
    "duration_text",
    "gain_text",
    "headline_of",
    "held_out",
    "interval_text",
    "listed",
    "metric_title",
    "moment_text",
    "number",
    "plural",
    "served_model",
    "setting_text",
    "signed",
    "uncertainty_note",
    "verdict",
]

_METRIC_TITLES = {
    "auc": "AUC",
    "ks": "KS",
    "f1": "F1",
    "brier": "Brier score",
    "macro_f1": "macro F1",
    "macro_auc": "macro AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
_IN_LABEL_UNITS = frozenset({"rmse", "mae"})
FEW_ROWS = 1000


def plural(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> plural(1, "row"), plural(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment_text(moment: str) -> str:
    """Write a moment to the minute, or as it stands where it is none.

    >>> moment_text("2026-11-18T20:35:48+00:00"), moment_text("")
    ('2026-11-18 20:35 UTC', '')
    """
    try:
        return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return moment


def listed(names: Sequence[str]) -> str:
    """Write names as an English list.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def bytes_text(count: int) -> str:
    """Write a size in human units.

    >>> bytes_text(900), bytes_text(1536), bytes_text(5 * 1024**2)
    ('900 B', '1.5 KiB', '5.0 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        # 1023.96 would print as 1024.0, so it already belongs to the next unit.
        if size < 1023.95:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def duration_text(seconds: float) -> str:
    """Write a duration in the two units that matter.

    >>> duration_text(4.21), duration_text(75), duration_text(7260)
    ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def metric_title(name: str) -> str:
    """Return the name of a metric as people write it."""
    return _METRIC_TITLES.get(name, name.replace("_", " "))


def number(name: str, value: float) -> str:
    """Write a metric: three decimals, or four significant digits for one in the label's units."""
    if name in _IN_LABEL_UNITS or abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:.3f}"


def difference(name: str, value: float, other: float) -> float:
    """Subtract two metrics as they are printed, so that a reader who subtracts finds the same."""
    if name in _IN_LABEL_UNITS:
        return value - other
    return round(round(value, 3) - round(other, 3), 3)


def data_parties(record: RunRecord) -> list[str]:
    """Name the parties that bring columns or labels."""
    found = [party for party, about in record.brought.items() if _brings_data(about)]
    return found or list(record.brought)


def _brings_data(about: Mapping[str, Any]) -> bool:
    return about["has_table"] and (bool(about["columns"]) or about["label"] is not None or about["is_elsewhere"])


def alone_name(record: RunRecord) -> str:
    """Name the party whose columns the model alone used."""
    if record.label_holders:
        return " and ".join(record.label_holders)
    holders = [party for party, about in record.brought.items() if about["label"] is not None]
    return holders[0] if len(holders) == 1 else "the label holder"


def interval_text(evaluation: Evaluation, name: str) -> str | None:
    """Write the rough 95% interval of a metric, where one can be had, and how many positive rows it rests on."""
    ends = interval(evaluation, name)
    said = [] if ends is None else [f"about {ends[0]:.3f} to {ends[1]:.3f}"]
    said += [] if evaluation.operating is None else [evaluation.operating.support]
    return "; ".join(said) or None


def held_out(evaluation: Evaluation) -> str:
    """Count the held-out rows, and those of the positive class among them."""
    rows, calls = plural(evaluation.rows, "held-out row"), evaluation.operating
    return rows if calls is None else f"{rows}, {calls.positives:,} of them '{calls.positive}'"


def signed(name: str, value: float, other: float) -> str:
    """Write by how much a metric is above another."""
    gap = difference(name, value, other)
    if gap == 0:
        return "±0"
    return ("+" if gap > 0 else "−") + number(name, abs(gap))


def gain_text(gain: Gain) -> str:
    """Write the interval of a difference.

    >>> gain_text(Gain(0.03, -0.0004, 0.06))
    '95% interval −0.000 to +0.060'
    """
    low, high = (f"{'−' if end < 0 else '+'}{abs(end):.3f}" for end in (gain.low, gain.high))
    return f"95% interval {low} to {high}"


def setting_text(value: object, none: str = "not set") -> str:
    """Write a setting's value for people.

    >>> setting_text(["a", True]), setting_text(()), setting_text(None)
    ('a, true', 'empty', 'not set')
    """
    if value is None:
        return none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(item) for item in value) or "empty"
    return str(value)


def uncertainty_note(evaluations: Iterable[Evaluation]) -> str | None:
    """Warn that few rows make a rough number."""
    shown = list(evaluations)
    rows = min((evaluation.rows for evaluation in shown), default=0)
    if not 0 < rows < FEW_ROWS:
        return None
    note = f"With {plural(rows, 'held-out row')} these numbers are rough, and another split or seed would change them."
    formulas = {"auc": "Hanley and McNeil's for AUC", "accuracy": "Wilson's for accuracy"}
    used = [text for name, text in formulas.items() if any(interval(evaluation, name) for evaluation in shown)]
    if used:
        note += (
            " The ranges in small print are about 95% intervals for each number by itself "
            f"({listed(used)}), assuming independent rows."
        )
    return note


def verdict(record: RunRecord) -> tuple[str, str]:
    """Say in two sentences how good the model is and whether federating helped, from the numbers alone."""
    served = record.evaluation
    if served is None and not record.makes_model:
        found = "; ".join(_found(record))
        rest = f"It found out: {found}." if found else f"What it finds out, {alone_name(record)} has."
        return (f"This run was the stage {record.plan.stage}, which makes no model.", rest)
    if served is None and any(about["is_elsewhere"] for about in record.brought.values()):
        return (f"How good the federated model is, only {alone_name(record)} can tell, by held-out scores.", "")
    if served is None:
        return ("This run kept no evaluation of the federated model.", "Nothing is said here about how good it is.")
    name = headline_of(served)
    if name is None:
        return (f"The model that serves was evaluated on {plural(served.rows, 'held-out row')}.", "")

    parties, alone = data_parties(record), f"{alone_name(record)} alone"
    reach = {
        "together": f"Together, {listed(parties)} reach" if len(parties) > 1 else "The federated model reaches",
        "alone": f"The model of {alone} reaches",
        "average": f"The average of the federated model and that of {alone} reaches",
    }[record.served]
    first = f"{reach} {metric_title(name)} {number(name, served.metrics[name])}"
    first += f" on {held_out(served)}"
    others = {"together": "the federated model", "alone": alone, "central": "all columns in one place"}
    for label, who in others.items():
        other = record.evaluations.get(label)
        if label != record.served and other is not None and name in other.metrics:
            first += f"; {who} {number(name, other.metrics[name])}"
    return f"{first}.", _judgement(record, served, name)


def served_model(record: RunRecord) -> str:
    """Say which model gives the scores, and whose columns it needs."""
    own = f"{alone_name(record)}'s columns alone"
    parties = data_parties(record)
    return {
        "together": f"The federated model of {listed(parties)}." if len(parties) > 1 else "The federated model.",
        "alone": f"The model of {own}; scores need no partner.",
        "average": f"The average of the federated model and a model of {own}.",
    }[record.served]


def _found(record: RunRecord) -> list[str]:
    """Return the titles of what was found, each once though several parties found it."""
    ends = tuple(f": {party}" for party in record.brought)
    titles = (one.title for one in record.findings.values())
    return list(
        dict.fromkeys(next((one.removesuffix(end) for end in ends if one.endswith(end)), one) for one in titles)
    )


def _judgement(record: RunRecord, served: Evaluation, name: str) -> str:
    alone = record.evaluations.get("alone")
    who = alone_name(record)
    gain = record.gains.get(name)
    sure = "" if gain is None else f" ({gain_text(gain)})"
    if record.served == "alone":
        said = f"Federating did not help here: on validation rows {who} alone was clearly better."
        if gain is not None:
            said += f" On held-out rows the federated model differs by {signed(name, gain.value, 0)}{sure}."
        return said
    if alone is None and record.findings:
        return f"What else was found out stands below: {'; '.join(_found(record))}."
    if alone is None or name not in alone.metrics:
        return f"No model of {who} alone was evaluated, so this report cannot say whether federating helped."
    gap = difference(name, served.metrics[name], alone.metrics[name])
    ahead = gap if higher_is_better(name) else -gap
    size = f"{abs(gap):.4g}" if name in _IN_LABEL_UNITS else f"{abs(gap):.3f}"
    if ahead == 0:
        return f"Federating did not help here: {who} alone does as well{sure}."
    if ahead < 0:
        return f"Federating did not help here: {who} alone is better by {size}{sure}."
    return f"Federating is ahead of {who} alone by {size}{sure}{_chance(gain, served, name, alone)}."


def _chance(gain: Gain | None, served: Evaluation, name: str, alone: Evaluation) -> str:
    """Warn of a difference that few rows cannot tell from none."""
    ends = interval(served, name)
    is_within = ends is not None and ends[0] <= alone.metrics[name] <= ends[1]
    if is_within if gain is None else not gain.is_clear:
        return f", but with {plural(served.rows, 'held-out row')} a difference this small may be chance"
    return ""
