"""The section of the report on how good the model is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from colonnade.metrics import Evaluation, OperatingPoint, higher_is_better, interval, proportion_interval
from colonnade.reports import figures
from colonnade.reports.markup import Html, joined, tag
from colonnade.reports.record import RunRecord
from colonnade.reports.tables import caption, table, terms
from colonnade.reports.wording import (
    alone_name,
    difference,
    metric_title,
    number,
    plural,
    signed,
    uncertainty_note,
)

__all__ = ["quality"]

_MODELS = {
    "together": "The federated model: every party's columns, each staying with its party.",
    "alone": "A model of the label holder's columns only: what can be had without a partner.",
    "average": "The mean of what these two say.",
    "central": "All columns of the shared rows in one place, which only a simulation can do. Usually a ceiling; it may "
    "fall below, above all where parties also learn from rows they do not share.",
}
MOST_TABLE_CLASSES = 12


def quality(record: RunRecord) -> Iterable[Html]:
    """Say how good the models are that a run has judged."""
    if not record.makes_model and not record.evaluations:
        yield tag("p", f"The stage {record.plan.stage} makes no model; what it is for is what it finds out.")
        return
    if not record.evaluations:
        is_one_sided = any(about["is_elsewhere"] for about in record.brought.values())
        holder = f" Held-out scores are seen by {alone_name(record)} only." if is_one_sided else ""
        yield tag("p", f"This run kept no evaluation here, so nothing can be said about how good the model is.{holder}")
        return
    legend = _legend(record)
    served = record.evaluation
    yield terms((legend[key], _MODELS.get(key, "")) for key in record.evaluations)
    yield _metric_table(record.evaluations, legend)
    note = uncertainty_note(record.evaluations.values())
    if note:
        yield tag("p", note, class_="soft")
    drawn = _drawn(record.evaluations, served, legend) if served else []
    if any(drawn):
        yield tag("div", *drawn, class_="figures")
    if served and served.operating:
        yield from _calls(record, served.operating, legend)
    confusion = served.curves.get("confusion") if served else None
    if confusion and len(confusion["classes"]) <= MOST_TABLE_CLASSES:
        title = "Confusion matrix of the model that serves: rows are true classes, columns the likeliest ones"
        yield _confusion_table(title, confusion["classes"], confusion["counts"])


def _drawn(evaluations: Mapping[str, Evaluation], served: Evaluation, legend: Mapping[str, str]) -> list[Html | None]:
    """Draw what a task has."""
    if served.task == "regression":
        return [figures.observed_figure(evaluations, legend), figures.residual_figure(evaluations, legend)]
    calibration = figures.calibration_figure(evaluations, legend)
    if served.task == "binary":
        pair = [figures.roc_figure(evaluations, legend), figures.precision_recall_figure(evaluations, legend)]
        return [*pair, figures.ks_figure(served), calibration]
    drawn = [figures.roc_by_class_figure(served), calibration]
    confusion = served.curves.get("confusion")
    if confusion and len(confusion["classes"]) > MOST_TABLE_CLASSES:
        drawn.append(figures.confusion_figure(confusion["classes"], confusion["counts"]))
    return drawn


def _calls(record: RunRecord, point: OperatingPoint, legend: Mapping[str, str]) -> Iterable[Html]:
    """Say from which score on rows are called positive, and what such calls are worth."""
    name = f"'{point.positive}'"
    yield tag("h3", f"Calling rows {name}")
    start = f"A row is called {name} from a probability of {point.threshold:.6g} on. {point.rule}"
    yield tag("p", f"{start} {_worth(point)}")
    counts = [[point.true_negatives, point.false_positives], [point.false_negatives, point.true_positives]]
    title = "Held-out rows as they are, and as the model that serves calls them"
    yield _confusion_table(title, [point.negative, point.positive], counts, called="called ")
    every = [one.operating for one in record.evaluations.values()]
    head = ["Calls", *legend.values()]
    rows = [
        ["threshold", *("–" if one is None else f"{one.threshold:.6g}" for one in every)],
        [f"rows called {name}", *("–" if one is None else f"{one.called:,}" for one in every)],
        [_explained("precision", f"share of these that are {name}"), *(_share(one, "precision") for one in every)],
        [_explained("recall", f"share of {name} rows that are called"), *(_share(one, "recall") for one in every)],
        [_explained("lift", "precision against calling at random"), *(_lift(one) for one in every)],
    ]
    title = "What calls are worth, each model at its own threshold"
    yield table(title, head, rows, numeric=set(range(1, len(head))))


def _worth(point: OperatingPoint) -> str:
    """Say what the calls are worth in a sentence."""
    called = f"Of {plural(point.rows, 'held-out row')} {point.called:,} are called so"
    if point.lift is None:
        return f"{called}."
    return (
        f"{called}, {point.true_positives:,} of them rightly: {point.lift:.1f} times as often as without a model. "
        f"{point.false_negatives:,} of the {point.positives:,} '{point.positive}' rows are missed."
    )


def _explained(name: str, meaning: str) -> Html:
    return joined([name, tag("small", meaning)])


def _share(point: OperatingPoint | None, name: str) -> str:
    value = None if point is None else getattr(point, name)
    if point is None or value is None:
        return "–"
    low, high = proportion_interval(value, point.called if name == "precision" else point.positives)
    return joined([f"{value:.3f}", tag("small", f"about {low:.3f}–{high:.3f}")])


def _lift(point: OperatingPoint | None) -> str:
    return "–" if point is None or point.lift is None else f"{point.lift:.2f}"


def _legend(record: RunRecord) -> dict[str, str]:
    titles = {"together": "together", "alone": f"alone ({alone_name(record)})", "central": "in one place"}
    chosen = {record.served} if len(record.evaluations) > 1 and "choice" in record.findings else set()
    return {key: titles.get(key, key) + (", serves" if key in chosen else "") for key in record.evaluations}


def _metric_table(evaluations: Mapping[str, Evaluation], legend: Mapping[str, str]) -> Html:
    names = list(dict.fromkeys(name for evaluation in evaluations.values() for name in evaluation.metrics))
    can_compare = "together" in evaluations and "alone" in evaluations
    head = ["Metric", *legend.values(), *(["together − alone"] if can_compare else [])]
    rows: list[list[str]] = []
    for name in names:
        cells: list[str] = [joined([metric_title(name), _direction(name)])]
        for evaluation in evaluations.values():
            cells.append(_metric_cell(evaluation, name))
        if can_compare:
            cells.append(_difference_cell(evaluations["together"], evaluations["alone"], name))
        rows.append(cells)
    rows.append(["rows", *(f"{value.rows:,}" for value in evaluations.values()), *([""] if can_compare else [])])
    title = "Held-out rows only: none of them was used for training or for choosing the epoch"
    return table(title, head, rows, numeric=set(range(1, len(head))))


def _direction(name: str) -> Html | None:
    better = higher_is_better(name)
    return None if better is None else tag("small", "higher is better" if better else "lower is better")


def _metric_cell(evaluation: Evaluation, name: str) -> str:
    if name not in evaluation.metrics:
        return "–"
    ends = interval(evaluation, name)
    small = tag("small", f"about {ends[0]:.3f}–{ends[1]:.3f}") if ends else None
    return joined([number(name, evaluation.metrics[name]), small])


def _difference_cell(together: Evaluation, alone: Evaluation, name: str) -> str:
    better = higher_is_better(name)
    if better is None or name not in together.metrics or name not in alone.metrics:
        return ""
    gap = difference(name, together.metrics[name], alone.metrics[name])
    text = signed(name, together.metrics[name], alone.metrics[name])
    if gap == 0:
        return text
    is_gain = (gap > 0) == better
    return tag("span", f"{text} ", "better" if is_gain else "worse", class_="best" if is_gain else "worse")


def _confusion_table(title: str, classes: Sequence[str], counts: Sequence[Sequence[int]], called: str = "") -> Html:
    rows = []
    for name, row in zip(classes, counts, strict=True):
        total = max(1, sum(row))
        cells = [
            tag("td", f"{count:,}", style=f"background: rgb(var(--shade) / {0.6 * count / total:.2f})") for count in row
        ]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    head = tag("tr", tag("th", "True class", scope="col"), *(tag("th", called + name, scope="col") for name in classes))
    matrix = tag("table", caption(title), tag("thead", head), tag("tbody", *rows))
    return tag("div", matrix, class_="scroll confusion", tabindex="0", role="region", aria_label=title)
