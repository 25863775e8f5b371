"""The section of the report on how good the model is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from colonnade.metrics import Evaluation, higher_is_better, interval
from colonnade.reports import figures
from colonnade.reports.markup import Html, joined, tag
from colonnade.reports.record import RunRecord
from colonnade.reports.tables import caption, table, terms
from colonnade.reports.wording import (
    alone_name,
    difference,
    metric_title,
    number,
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
    yield terms((legend[key], _MODELS.get(key, "")) for key in record.evaluations)
    yield _metric_table(record.evaluations, legend)
    note = uncertainty_note(record.evaluations.values())
    if note:
        yield tag("p", note, class_="soft")
    served = record.evaluation
    if served and served.task == "binary" and "auc" not in served.metrics:
        yield tag("p", "The held-out rows hold one class only, so AUC and KS cannot be computed.", class_="soft")

    drawn: list[Html | None] = []
    if served and served.task == "multiclass":
        drawn += [figures.roc_by_class_figure(served), figures.calibration_figure(record.evaluations, legend)]
    elif served and served.task == "binary":
        drawn += [figures.roc_figure(record.evaluations, legend), figures.ks_figure(served)]
        drawn += [figures.calibration_figure(record.evaluations, legend)]
    elif served:
        drawn += [
            figures.observed_figure(record.evaluations, legend),
            figures.residual_figure(record.evaluations, legend),
        ]
    confusion = served.curves.get("confusion") if served else None
    if confusion and len(confusion["classes"]) > MOST_TABLE_CLASSES:
        drawn.append(figures.confusion_figure(confusion["classes"], confusion["counts"]))
    if any(drawn):
        yield tag("div", *drawn, class_="figures")
    if confusion and len(confusion["classes"]) <= MOST_TABLE_CLASSES:
        yield _confusion_table(confusion["classes"], confusion["counts"])


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


def _confusion_table(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    rows = []
    for name, row in zip(classes, counts, strict=True):
        total = max(1, sum(row))
        cells = [
            tag("td", f"{count:,}", style=f"background: rgb(var(--shade) / {0.6 * count / total:.2f})") for count in row
        ]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    head = tag("tr", tag("th", "True class", scope="col"), *(tag("th", name, scope="col") for name in classes))
    above = caption("Confusion matrix, federated model: rows are true classes, columns predicted ones")
    matrix = tag("table", above, tag("thead", head), tag("tbody", *rows))
    return tag("div", matrix, class_="scroll confusion", tabindex="0", role="region", aria_label="Confusion matrix")
