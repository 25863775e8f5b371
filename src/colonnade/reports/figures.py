"""Figures as inline SVG, the same bytes for the same numbers.

Drawn through matplotlib's ``Figure`` object, not pyplot: no global figure list and no window system. Text stays text,
so that it can be searched. Names given by users are shortened here and escaped by matplotlib's SVG writer.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from colonnade.metrics import Evaluation
from colonnade.reports.figure_values import check_figure
from colonnade.reports.markup import Html, tag
from colonnade.reports.wording import number
from colonnade.session import Figure
from colonnade.text import spelt_out

__all__ = [
    "calibration_figure",
    "confusion_figure",
    "finding_figure",
    "ks_figure",
    "loss_figure",
    "metric_figure",
    "observed_figure",
    "precision_recall_figure",
    "residual_figure",
    "roc_by_class_figure",
    "roc_figure",
]

INK = "#3a3f47"
# Blue, orange and grey differ in lightness as well as hue, and the dashes differ too: for print and colour-blind eyes.
_LINES: dict[str, dict[str, Any]] = {
    "together": {"color": "#1c5d99", "linewidth": 2.2, "zorder": 4},
    "average": {"color": "#4b8f5c", "linewidth": 1.7, "linestyle": (0, (7, 1.5)), "zorder": 3},
    "alone": {"color": "#d0741c", "linewidth": 1.7, "linestyle": (0, (5, 2)), "zorder": 3},
    "central": {"color": "#71777f", "linewidth": 1.5, "linestyle": (0, (1.5, 1.5)), "zorder": 2},
}
# Paul Tol's muted scheme, in an order that keeps neighbours apart.
_CLASS_COLOURS = (
    "#332288", "#cc6677", "#117733", "#ddaa33", "#88ccee", "#882255", "#44aa99", "#999933", "#aa4499", "#777777",
)  # fmt: skip
_STYLE = {
    "axes.edgecolor": "#9aa0a8",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "font.size": 10,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.edgecolor": "none",
    "legend.fancybox": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "colonnade",
    "text.color": INK,
    # A dollar sign in a party's name is not mathematics.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
# Red and blue as the literature draws domains; the markers differ too. Levels go from blue to red over grey.
# The first are larger, so that they show behind others at the same place.
_SERIES = (("#b8332f", "o", 24), ("#2f6fb0", "^", 11), ("#777777", "s", 6))
_LEVELS = ("#2166ac", "#6ea6cd", "#b9b4bd", "#e8896b", "#b2182b")
_SWARM_BINS = 70
# Of pictures: the space between two, and room for the rows' names and for captions, in parts of one; how large a pixel
# is; how wide they are together, and how many there is room for at least.
_PICTURE_GAP, _NAME_ROOM, _CAPTION_ROOM, _PIXEL, _PICTURES_WIDE, _LEAST_ACROSS = 0.12, 1.6, 0.4, 4, 8.0, 8
# Pixels that nobody knows are striped, in two blues which no grey picture has.
_STRIPE = 8
_UNKNOWN = ((193, 212, 233), (226, 236, 246))
MOST_POINTS = 400
Legend = Mapping[str, str]
Draw = Callable[[Any], None]


def _short(text: str, length: int = 26) -> str:
    flat = spelt_out(text)
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def _figure(
    key: str,
    title: str,
    description: str,
    draw: Draw,
    size: tuple[float, float] = (5.2, 4.3),
    class_: str | None = None,
) -> Html:
    """Draw one set of axes and wrap it with its caption and a description for those who cannot see it."""
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    with matplotlib.style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        # matplotlib measures text with its own font even though the reader's browser chooses another.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        canvas = Canvas(figsize=size, layout="constrained")
        draw(canvas.add_subplot())
        written = io.StringIO()
        nothing = {"Creator": None, "Date": None, "Format": None, "Type": None}
        canvas.savefig(written, format="svg", metadata=nothing, transparent=True)
    svg = _inlined(written.getvalue(), key, f"{title}. {description}")
    return tag("figure", svg, tag("figcaption", tag("strong", f"{title}."), f" {description}"), class_=class_)


def _inlined(document: str, key: str, label: str) -> Html:
    """Cut the ``<svg>`` element out of an SVG document and make its ids unique in the page."""
    svg = document[document.index("<svg") :]
    # Namespaces are implied inside HTML; the page's style sheet says what the embedded one did.
    svg = re.sub(r"\s+xmlns(:\w+)?=\"[^\"]*\"", "", svg)
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(?<=\sid=\")", f"{key}-", svg)
    svg = re.sub(r"(?<=href=\"#)|(?<=url\(#)", f"{key}-", svg)
    view = re.search(r"viewBox=\"[^\"]*\"", svg)
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    open_tag = tag("svg", role="img", aria_label=label).removesuffix("></svg>")
    return Html(f"{open_tag} {view[0] if view else ''}>{body.strip()}</svg>")


def _unit_axes(axes: Any, across: str, up: str) -> None:
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel=across, ylabel=up)


def _diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color="#b4b9c0", linewidth=0.9, zorder=1)


def _numbers_of(evaluations: Mapping[str, Evaluation], metric: str, legend: Legend) -> str:
    found = [
        f"{legend[key]} {number(metric, value.metrics[metric])}"
        for key, value in evaluations.items()
        if metric in value.metrics
    ]
    return "; ".join(found)


def _with(evaluations: Mapping[str, Evaluation], curve: str) -> dict[str, Evaluation]:
    return {key: value for key, value in evaluations.items() if key in _LINES and value.curves.get(curve)}


def roc_figure(evaluations: Mapping[str, Evaluation], legend: Legend) -> Html | None:
    """Overlay the ROC curves of all models."""
    drawn = _with(evaluations, "roc")
    if not drawn:
        return None

    def draw(axes: Any) -> None:
        _diagonal(axes)
        for key, evaluation in drawn.items():
            curve = evaluation.curves["roc"]
            name = f"{_short(legend[key])} ({evaluation.metrics['auc']:.3f})"
            axes.plot(curve["false_positive_rate"], curve["true_positive_rate"], label=name, **_LINES[key])
        _unit_axes(axes, "false positive rate", "true positive rate")
        axes.legend(loc="lower right")

    areas = _numbers_of(drawn, "auc", legend)
    text = f"Closer to the upper left corner is better; the diagonal is guessing. AUC: {areas}."
    return _figure("roc", "ROC curves", text, draw)


def roc_by_class_figure(evaluation: Evaluation) -> Html | None:
    """Draw one ROC curve for each class of the federated model."""
    curves = evaluation.curves.get("roc")
    if not curves:
        return None

    def draw(axes: Any) -> None:
        _diagonal(axes)
        for curve, colour in zip(curves, _CLASS_COLOURS, strict=False):
            name = f"class {_short(str(curve['class']), 18)}"
            across, up = curve["false_positive_rate"], curve["true_positive_rate"]
            axes.plot(across, up, label=name, color=colour, linewidth=1.6)
        _unit_axes(axes, "false positive rate", "true positive rate")
        axes.legend(loc="lower right", fontsize=8)

    text = "Each class against the rest, federated model."
    if "macro_auc" in evaluation.metrics:
        text += f" Mean area over the classes: {evaluation.metrics['macro_auc']:.3f}."
    return _figure("roc", "ROC curves by class", text, draw)


def precision_recall_figure(evaluations: Mapping[str, Evaluation], legend: Legend) -> Html | None:
    """Overlay the precision-recall curves of all models, with the point at which each calls rows positive."""
    drawn = _with(evaluations, "precision_recall")
    if not drawn:
        return None
    calls = {key: evaluation.operating for key, evaluation in drawn.items() if evaluation.operating is not None}

    def draw(axes: Any) -> None:
        share = next(iter(drawn.values())).metrics["positive_rate"]
        axes.plot([0, 1], [share, share], color="#b4b9c0", linewidth=0.9, zorder=1)
        for key, evaluation in drawn.items():
            curve, line = evaluation.curves["precision_recall"], _LINES[key]
            axes.plot(curve["recall"], curve["precision"], label=_short(legend[key]), **line)
            point = calls.get(key)
            if point is not None and point.precision is not None and point.recall is not None:
                axes.scatter(
                    [point.recall], [point.precision], s=46, color=line["color"], edgecolors="#ffffff", zorder=6
                )
        _unit_axes(axes, "recall: share of positive rows found", "precision: share of calls that are right")
        axes.legend(loc="best")

    text = (
        "Higher and further right is better; the flat line is calling rows at random. A dot is where a model calls "
        "rows positive, at its own threshold."
    )
    return _figure("precision-recall", "Precision and recall", text, draw)


def ks_figure(evaluation: Evaluation) -> Html | None:
    """Draw the score distributions of the two classes and the widest gap between them."""
    curve = evaluation.curves.get("ks")
    if not curve:
        return None
    at = curve["widest"]
    # The curve is drawn by groups of rows; the number itself is exact.
    widest = evaluation.metrics["ks"]
    cut, low, high = (curve[name][at] for name in ("threshold", "cumulative_positive", "cumulative_negative"))

    def draw(axes: Any) -> None:
        scores = [0.0, *curve["threshold"], 1.0]
        for name, colour, dashes in (("negative", "#71777f", (0, (5, 2))), ("positive", "#1c5d99", "-")):
            shares = [0.0, *curve[f"cumulative_{name}"], 1.0]
            axes.step(scores, shares, where="post", label=f"{name} rows", color=colour, linestyle=dashes, linewidth=1.9)
        axes.plot([cut, cut], [low, high], color="#d0741c", linewidth=2.2, label=f"widest gap ({widest:.3f})")
        _unit_axes(axes, "predicted probability", "share of rows at or below")
        # Above the axes: inside, it would cover a curve wherever the gap happens to lie.
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1.2, handlelength=1.6)

    text = (
        f"How far the scores of the model that serves pull the two classes apart: KS {widest:.3f}, "
        f"at a probability of {cut:.2f}."
    )
    return _figure("ks", "Separation of the classes", text, draw)


def calibration_figure(evaluations: Mapping[str, Evaluation], legend: Legend) -> Html | None:
    """Overlay predicted probability against observed share."""
    drawn = _with(evaluations, "calibration")
    if not drawn:
        return None
    is_binary = next(iter(drawn.values())).task == "binary"

    def draw(axes: Any) -> None:
        _diagonal(axes)
        for key, evaluation in drawn.items():
            curve = evaluation.curves["calibration"]
            most = max(curve["count"])
            # A dot's area follows its rows, because a bin of three rows should not catch the eye.
            sizes = [10 + 50 * count / most for count in curve["count"]]
            line = _LINES[key]
            axes.plot(curve["predicted"], curve["observed"], label=_short(legend[key]), **{**line, "linewidth": 1.4})
            axes.scatter(curve["predicted"], curve["observed"], s=sizes, color=line["color"], zorder=line["zorder"])
        up = "observed share of positives" if is_binary else "share of rows classed right"
        _unit_axes(axes, "predicted probability", up)
        axes.legend(loc="upper left")

    text = (
        "On the diagonal a predicted probability means what it says; larger dots stand for more rows. "
        f"Calibration error: {_numbers_of(drawn, 'calibration_error', legend)}."
    )
    return _figure("calibration", "Calibration", text, draw)


def confusion_figure(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """Draw a confusion matrix too large for a table."""
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]

    def draw(axes: Any) -> None:
        axes.grid(visible=False)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xlabel="predicted class (by index)", ylabel="true class (by index)")

    text = f"{len(classes)} classes, federated model. A darker cell holds a larger share of its true class's rows."
    return _figure("confusion", "Confusion matrix", text, draw)


def observed_figure(evaluations: Mapping[str, Evaluation], legend: Legend) -> Html | None:
    """Overlay mean observed against mean predicted values, in groups of equal size."""
    drawn = _with(evaluations, "predicted_observed")
    if not drawn:
        return None

    def draw(axes: Any) -> None:
        ends: list[float] = []
        for key, evaluation in drawn.items():
            curve = evaluation.curves["predicted_observed"]
            ends += curve["predicted"] + curve["observed"]
            style = {**_LINES[key], "linewidth": 1.4}
            axes.plot(
                curve["predicted"], curve["observed"], label=_short(legend[key]), marker="o", markersize=4, **style
            )
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="#b4b9c0", linewidth=0.9, zorder=1)
        axes.set(xlabel="mean predicted value", ylabel="mean observed value")
        axes.locator_params(nbins=6)
        axes.legend(loc="upper left")

    text = "Rows in groups of equal size, by prediction. On the diagonal the prediction is right on average."
    return _figure("observed", "Predicted and observed", text, draw)


def residual_figure(evaluations: Mapping[str, Evaluation], legend: Legend) -> Html | None:
    """Overlay the distributions of the errors."""
    drawn = _with(evaluations, "residuals")
    if not drawn:
        return None

    def draw(axes: Any) -> None:
        for key, evaluation in drawn.items():
            curve = evaluation.curves["residuals"]
            widths = [high - low for low, high in zip(curve["edges"], curve["edges"][1:], strict=False)]
            # Densities, because each model's bins have their own width.
            total = sum(curve["count"])
            heights = [count / total / width for count, width in zip(curve["count"], widths, strict=True)]
            if key == "together":
                axes.stairs(heights, curve["edges"], fill=True, color=_LINES[key]["color"], alpha=0.15)
            axes.stairs(heights, curve["edges"], label=_short(legend[key]), baseline=None, **_LINES[key])
        axes.axvline(0, color="#b4b9c0", linewidth=0.9, zorder=1)
        # The height of a density depends on the label's units and says nothing by itself.
        axes.set(xlabel="observed minus predicted", ylabel="share of rows", ylim=(0, None), yticks=[])
        axes.locator_params(axis="x", nbins=6)
        axes.legend(loc="best", fontsize=8)

    text = f"A narrow hill around zero is good. RMSE: {_numbers_of(drawn, 'rmse', legend)}."
    return _figure("residuals", "Errors", text, draw)


def _by_epoch(points: Sequence[Mapping[str, Any]], name: str, mean: bool) -> tuple[list[float], list[float]]:
    """Return one value for each epoch, or for each step when there are fewer than three epochs."""
    axis = _axis(points)
    groups: dict[float, list[float]] = {}
    for point in points:
        place, value = point.get(axis), point.get(name)
        # Not every point carries every number: validation usually happens once an epoch.
        if place is not None and value is not None and isfinite(value):
            groups.setdefault(float(place), []).append(float(value))
    places = sorted(groups)
    values = [sum(groups[place]) / len(groups[place]) if mean else groups[place][-1] for place in places]
    if len(places) > MOST_POINTS:
        step = -(-len(places) // MOST_POINTS)
        slices = [slice(start, start + step) for start in range(0, len(places), step)]
        values = [sum(values[part]) / len(values[part]) for part in slices]
        places = [places[part][-1] for part in slices]
    return places, values


def _axis(points: Sequence[Mapping[str, Any]]) -> str:
    epochs = {point["epoch"] for point in points if point.get("epoch") is not None}
    has_steps = all(point.get("step") is not None for point in points)
    return "step" if has_steps and len(epochs) < 3 else "epoch"


def _mark_chosen(axes: Any, points: Sequence[Mapping[str, Any]], chosen: int | None) -> None:
    if chosen is None:
        return
    place: float = chosen
    if _axis(points) == "step":
        steps = [point["step"] for point in points if point.get("epoch") == chosen]
        if not steps:
            return
        place = max(steps)
    axes.axvline(place, color="#d0741c", linewidth=1.2, linestyle=(0, (2, 2)), label=f"kept: epoch {chosen}")


def _curve_figure(
    key: str, title: str, points: Sequence[Mapping[str, Any]], lines: Mapping[str, str], chosen: int | None, up: str
) -> Html | None:
    series = {name: _by_epoch(points, name, mean=name == "train_loss") for name in lines}
    series = {name: line for name, line in series.items() if line[0]}
    if not series:
        return None

    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        for name, (places, values) in series.items():
            style = _LINES["alone" if name == "train_loss" and len(series) > 1 else "together"]
            axes.plot(
                places, values, label=lines[name], marker="o" if len(places) <= 30 else "", markersize=3.5, **style
            )
        _mark_chosen(axes, points, chosen)
        axes.set(xlabel=_axis(points), ylabel=up)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()

    ends = "; ".join(f"{lines[name]} from {values[0]:.4g} to {values[-1]:.4g}" for name, (_, values) in series.items())
    text = f"By {_axis(points)}: {ends}." + (f" The model of epoch {chosen} was kept." if chosen is not None else "")
    return _figure(key, title, text, draw)


def loss_figure(points: Sequence[Mapping[str, Any]], chosen: int | None, part: str = "") -> Html | None:
    """Draw training and validation loss, of one part of the training where it has several."""
    lines = {"train_loss": "training", "validation_loss": "validation"}
    # Names of parties may hold anything; an id may not.
    key = "loss" + "".join(f"-{ord(character):x}" for character in part)
    return _curve_figure(key, f"Loss, {part}" if part else "Loss", points, lines, chosen, "loss")


def metric_figure(points: Sequence[Mapping[str, Any]], chosen: int | None, title: str) -> Html | None:
    """Draw the validation metric."""
    lines = {"validation_metric": title}
    return _curve_figure("metric", f"Validation {title}", points, lines, chosen, title)


def finding_figure(key: str, note: Figure) -> Html:
    """Draw what a method gave with one of its findings."""
    check_figure(note)
    draw = {
        "scatter": _scatter_figure,
        "trade_off": _trade_off_figure,
        "bars": _bar_figure,
        "beeswarm": _beeswarm_figure,
        "pictures": _picture_figure,
    }[note.kind]
    return draw(key, note)


def _scatter_figure(key: str, note: Figure) -> Html:
    """Draw series of points whose places have no units; small, to stand side by side."""
    series = note.values["series"]

    def draw(axes: Any) -> None:
        for one, (colour, marker, size) in zip(series, _SERIES, strict=False):
            name = _short(str(one["name"]), 14)
            axes.scatter(one["x"], one["y"], s=size, color=colour, marker=marker, alpha=0.75, linewidths=0, label=name)
        axes.set(xticks=[], yticks=[])
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(series),
            handletextpad=0.2,
            columnspacing=1.0,
            markerscale=1.6,
        )

    counts = ", ".join(f"{len(one['x'])} rows of {one['name']}" for one in series)
    return _figure(key, note.title, f"{counts[:1].upper()}{counts[1:]}.", draw, (3.1, 2.9))


def _trade_off_figure(key: str, note: Figure) -> Html:
    """Draw what one number costs another: a line through the points of each series, each with its mark."""
    series, across, up = note.values["series"], str(note.values["across"]), str(note.values["up"])

    def draw(axes: Any) -> None:
        for one, (colour, marker, _) in zip(series, _SERIES, strict=False):
            name = _short(str(one["name"]), 24)
            axes.plot(one["x"], one["y"], color=colour, marker=marker, markersize=4, linewidth=1, label=name, zorder=3)
            for x, y, mark in zip(one["x"], one["y"], one["marks"], strict=True):
                text = _short(str(mark), 8)
                axes.annotate(text, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7, parse_math=False)
        axes.set(xlabel=_short(across, 60), ylabel=_short(up, 40))
        axes.legend(loc="lower right")

    points = "; ".join(
        f"{one['name']}: "
        + ", ".join(
            f"{x:.3f} and {y:.3f} at {mark}" for x, y, mark in zip(one["x"], one["y"], one["marks"], strict=True)
        )
        for one in series
    )
    return _figure(key, note.title, f"Across: {across}. Up: {up}. {points}.", draw, (5.2, 3.4))


def _bar_figure(key: str, note: Figure) -> Html:
    """Draw a bar for each name, the first on top."""
    names, lengths = [str(one) for one in note.values["names"]], note.values["lengths"]

    def draw(axes: Any) -> None:
        axes.barh(range(len(names)), lengths, color=_LINES["together"]["color"], height=0.62, zorder=3)
        _name_rows(axes, names)
        axes.set_xlim(left=min(0.0, *lengths) if lengths else 0.0)

    longest = max(range(len(names)), key=lambda place: abs(lengths[place]), default=None)
    text = "" if longest is None else f"The longest is {names[longest]}: {lengths[longest]:.3g}."
    return _figure(key, note.title, text, draw, (5.2, 1.0 + 0.28 * max(len(names), 4)))


def _beeswarm_figure(key: str, note: Figure) -> Html:
    """Draw a row of dots for each name: where a dot lies is its value, its colour is its level."""
    names, values, levels = [str(one) for one in note.values["names"]], note.values["values"], note.values["levels"]
    every = [value for row in values for value in row]
    width = (max(every, default=0.0) - min(every, default=0.0)) / _SWARM_BINS or 1.0

    def draw(axes: Any) -> None:
        axes.axvline(0, color="#8a9098", linewidth=0.9, zorder=1)
        dots: list[Any] = []
        for level, colour in enumerate(_LEVELS):
            across, up = [], []
            for place, row in enumerate(values):
                heights = _swarm(row, width)
                chosen = [number for number, one in enumerate(levels[place]) if one == level]
                across += [row[number] for number in chosen]
                up += [place + heights[number] for number in chosen]
            dots.append(axes.scatter(across, up, s=11, color=colour, linewidths=0, zorder=3))
        _name_rows(axes, names)
        axes.set_xlabel("what it adds to the score")
        axes.legend(
            dots,
            ["low", "", "", "", "high"],
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(_LEVELS),
            handletextpad=0.1,
            columnspacing=0.4,
            markerscale=1.6,
        )

    rows = max((len(row) for row in values), default=0)
    text = (
        f"A dot is one of {rows} rows. Right of zero it raises the score, left of zero it lowers it. Its colour is the "
        "fifth of all rows in which the group's or column's own number lies, from low (blue) to high (red)."
    )
    return _figure(key, note.title, text, draw, (5.2, 1.1 + 0.32 * max(len(names), 4)))


def _picture_figure(key: str, note: Figure) -> Html:
    """Draw rows of small pictures, one below the other, so that a column is one thing in several states."""
    (_, height, width), captions, rows = note.values["shape"], note.values["captions"], note.values["rows"]
    across, down = width * (1 + _PICTURE_GAP), height * (1 + _PICTURE_GAP)
    # A few pictures are not blown up: they take as much room as many would.
    right = max(len(captions), _LEAST_ACROSS) * across

    def draw(axes: Any) -> None:
        axes.set_axis_off()
        for line, row in enumerate(rows):
            for place, pixels in enumerate(row["pictures"]):
                left, top = place * across, line * down
                axes.imshow(
                    _colours(pixels, note.values["shape"]),
                    extent=(left, left + width, top + height, top),
                    interpolation="none",
                )
            name = _short(str(row["name"]), 22)
            axes.text(-0.15 * width, line * down + height / 2, name, ha="right", va="center", fontsize=8)
        for place, caption in enumerate(captions):
            middle = place * across + width / 2
            axes.text(middle, -0.1 * height, _short(str(caption), 12), ha="center", va="bottom", fontsize=8)
        axes.set(xlim=(-_NAME_ROOM * width, right), ylim=(len(rows) * down, -_CAPTION_ROOM * height))

    what = "picture" if len(captions) == 1 else "pictures"
    text = f"{len(captions)} {what}. From top to bottom: {', '.join(str(row['name']) for row in rows)}."
    if any(pixel is None for row in rows for pixels in row["pictures"] for pixel in pixels):
        text += " Pixels that are not known are striped."
    shape = (len(rows) * down + _CAPTION_ROOM * height) / (right + _NAME_ROOM * width)
    return _figure(key, note.title, text, draw, (_PICTURES_WIDE, _PICTURES_WIDE * shape), class_="wide")


def _colours(pixels: Sequence[int | None], shape: Sequence[int]) -> Any:
    """Return a picture as red, green and blue, large enough that no viewer blurs its pixels."""
    import numpy as np

    channels, height, width = shape
    known = np.array([-1 if pixel is None else pixel for pixel in pixels]).reshape(channels, height, width)
    picture = np.moveaxis(np.broadcast_to(known, (3, height, width)), 0, -1)
    picture = picture.repeat(_PIXEL, axis=0).repeat(_PIXEL, axis=1)
    lines = np.add.outer(np.arange(height * _PIXEL), np.arange(width * _PIXEL)) // _STRIPE % 2
    stripes = np.where(lines[..., None] == 0, *(np.array(one) for one in _UNKNOWN))
    return np.where((picture < 0).any(axis=2, keepdims=True), stripes, picture).astype(np.uint8)


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(name, 30) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=6)


def _swarm(values: Sequence[float], width: float) -> list[float]:
    """Spread dots of about equal value up and down, so that many of them look like many."""
    bins = [round(value / width) for value in values]
    count = Counter(bins)
    most = max(count.values(), default=1)
    step = 0.8 / max(most, 12)
    seen: Counter[int] = Counter()
    heights = []
    for one in bins:
        heights.append(step * (seen[one] - (count[one] - 1) / 2))
        seen[one] += 1
    return heights
