"""What a run of FairVFL found out beside the model, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from colonnade.methods.fairvfl.config import FairVFL
from colonnade.metrics import (
    GroupCounts,
    Inference,
    demographic_parity_gap,
    equal_opportunity_gap,
    equalised_odds_gap,
    rank_impressions,
)
from colonnade.session import Figure, Finding

if TYPE_CHECKING:
    from colonnade.methods.fairvfl.sides import Adversary, Attribute

__all__ = [
    "attack_finding",
    "columns_finding",
    "fairness_finding",
    "gaps_finding",
    "privacy_finding",
    "protection_finding",
    "ranking_finding",
    "safeguard_finding",
    "trade_off_finding",
    "verdict_finding",
]

# What an attacker's area under the curve is called in words. Chance is 0.5.
_HARDLY, _SOMEWHAT = 0.6, 0.7
_DELTA = 1e-5
# How much of what is read without removal must be gone before a model is called fair.
_LEAST_WAY = 0.25
_GAPS = {
    "demographic parity": demographic_parity_gap,
    "equalised odds": equalised_odds_gap,
    "equal opportunity": equal_opportunity_gap,
}


def protection_finding(config: FairVFL) -> Finding:
    """Say first what the settings mean for who can read what."""
    if config.removed:
        removed = (
            f"The run pushed {' and '.join(config.removed)} out of the code that the prediction is made of. What the "
            "code still carries of that is measured by the stage audit; without one, nothing is known about it."
        )
    else:
        removed = "No attribute was removed: this is a plain vertical model."
    if config.removal == "paper" and config.removed:
        removed += (
            " The paper's way of removal was used. On public data a strong attacker still read attributes from such a "
            "code."
        )
    if config.task_cut == "server":
        code = "The label holder gets scores only; the aggregator sees all codes."
    elif config.noise:
        code = (
            f"The label holder gets a code of {config.unified_width} numbers behind noise of {config.noise:g} standard "
            "deviations; the aggregator sees it without noise, and all parties' codes."
        )
    else:
        code = "The label holder gets the whole code, without noise; the aggregator sees all parties' codes."
    labels = "From the task's gradients the aggregator can read the labels."
    if not config.removed:
        attributes = ""
    elif config.hides_attributes and not config.secret_start:
        attributes = (
            "From the attributes' gradients it can read their values: randomised answers and noise follow from the "
            "run's seed (secret_start = false)."
        )
    elif config.label_epsilon:
        attributes = (
            f"From the attributes' gradients it can read answers that were drawn at random once, with a privacy loss "
            f"of {config.label_epsilon:g} for each value."
        )
    elif config.gradient_noise:
        attributes = "The attributes' gradients are behind noise."
    else:
        attributes = "From the attributes' gradients it can read their values, for every row."
    text = " ".join(one for one in (removed, code, labels, attributes) if one)
    values = {"removal": config.removal, "removed": list(config.removed), "task_cut": config.task_cut}
    return Finding(name="protection", title="What was removed, and who can read what", text=text, values=values)


def privacy_finding(config: FairVFL, adversaries: Sequence[Adversary]) -> Finding:
    """Say what gradients cost the values of attributes."""
    rows, texts, values = [], [], {}
    for one in adversaries:
        attribute = one.attribute
        kind = "numbers" if attribute.is_numeric else f"{len(attribute.classes)} classes"
        # Noise that follows from the run's seed, which everybody knows, hides nothing.
        epsilon = (config.label_epsilon or None) if config.secret_start else None
        released = one.budget.epsilon(_DELTA) if one.budget is not None and config.secret_start else None
        noise = "no such noise" if one.budget is None else _told(released)
        rows.append((attribute.name, kind, _told(epsilon), noise))
        values[attribute.name] = {"epsilon": epsilon, "gradient_epsilon": released}
        if one.response is not None and config.secret_start:
            texts.append(f"{attribute.name}: {one.response.budget(len(attribute.targets)).text()}")
    if not config.hides_attributes:
        texts.append("No answer was randomised: the aggregator can tell every value from gradients.")
    if not config.secret_start:
        texts.append("With secret_start = false all draws follow from the run's seed and protect nothing.")
    if config.gradient_noise:
        texts.append(f"The noise on gradients is counted for the row that was sent most often, at delta {_DELTA:g}.")
    return Finding(
        name="attribute_privacy",
        title="What gradients give away of sensitive values",
        text=" ".join(texts),
        columns=("attribute", "kind", "epsilon of each answer", "epsilon of noise on gradients"),
        rows=tuple(rows),
        values=values,
    )


def safeguard_finding(measure: str, found: float, constant: float, rows: int, is_refused: bool) -> Finding:
    """Say whether the model is worth anything: removing attributes can leave nothing of the task."""
    said = f"On {rows} held-out rows the task has {measure} {found:.3f}; one answer for all would have {constant:.3f}."
    if is_refused:
        said += (
            " So the model is refused to be used. Train again with a lower removal_weight or more epochs; the stage "
            "sweep shows what each weight costs. To use it all the same, train with safeguard = false."
        )
    return Finding(
        name="safeguard",
        title="Whether the model is worth anything",
        text=said,
        values={"measure": measure, "found": found, "constant": constant, "rows": rows, "refused": is_refused},
    )


def ranking_finding(logits: torch.Tensor, clicks: torch.Tensor) -> Finding:
    """Say how well candidates were ranked on held-out rows."""
    is_there = (clicks >= 0).numpy()
    rows = np.repeat(np.arange(len(clicks)), is_there.sum(axis=1))
    found = rank_impressions(logits.double().numpy()[is_there], clicks.numpy()[is_there], rows).means()
    return Finding(
        name="ranking",
        title="How well candidates are ranked",
        text="On held-out rows with a chosen and another candidate; 0.5 is chance for the area under the curve.",
        columns=tuple(found),
        rows=(tuple(f"{value:.4f}" for value in found.values()),),
        values=dict(found),
    )


def attack_finding(attribute: Attribute, read: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Say what each attacker reads of an attribute in the code as the label holder sees it."""
    if attribute.is_numeric:
        columns: tuple[str, ...] = ("attacker", "R²", "correlation")
        rows: tuple[tuple[str, ...], ...] = tuple(
            (kind, _shown(one["r2"]), _shown(one["correlation"])) for kind, one in read.items()
        )
    else:
        columns = ("attacker", "macro F1", "macro F1, tuned", "AUC", "chance")
        rows = tuple(
            (
                kind,
                _shown(one["macro_f1"]),
                _shown(one["tuned_macro_f1"]),
                _shown(one["auc"]),
                " to ".join(f"{end:.2f}" for end in one["chance"]),
            )
            for kind, one in read.items()
        )
    text = (
        "Attackers were trained on the code of training rows and the attribute, and judged on held-out rows. The "
        "best of them counts: weak ones overlook what lies in directions of little variance. Macro F1 without tuning "
        "is low where an attacker names the larger group for all, and then says little."
    )
    return Finding(
        name=f"attack_{attribute.name}",
        title=f"What can be read of {attribute.name}",
        text=text,
        columns=columns,
        rows=rows,
        values={kind: dict(one) for kind, one in read.items()},
    )


def columns_finding(config: FairVFL, read: Mapping[str, Sequence[Inference]]) -> Finding:
    """Say what is read of a party's columns, from the code and from protected codes."""
    names = ("code", *(f"protected for {one}" for one in config.removed))
    rows = tuple(
        (column, *(_shown(one.macro_f1) for one in found), " to ".join(f"{end:.2f}" for end in found[0].chance))
        for column, found in read.items()
    )
    return Finding(
        name="attack_columns",
        title="What can be read of this party's columns",
        text="Macro F1 of strong attackers on held-out rows, the mean of several, beside the band of chance.",
        columns=("column", *names, "chance"),
        rows=rows,
        values={
            column: {name: one.macro_f1 for name, one in zip(names, found, strict=True)}
            for column, found in read.items()
        },
    )


def gaps_finding(counts: Mapping[str, Mapping[str, GroupCounts]], *, is_ranking: bool = False) -> Finding:
    """Say by how much groups are decided for differently; of a ranking, how often it finds what they chose."""
    rows, values = [], {}
    gaps = {"found": demographic_parity_gap} if is_ranking else _GAPS
    for attribute, by_threshold in counts.items():
        for threshold, one in by_threshold.items():
            for name, measure in gaps.items():
                gap = measure(one)
                interval = f"{_shown(gap.low)} to {_shown(gap.high)}"
                rows.append((attribute, threshold, name, _shown(gap.value), interval))
                values[f"{attribute}, {name}, {threshold}"] = gap.value
    return Finding(
        name="gaps",
        title="How groups are decided for",
        text=(
            "Differences between the groups of an attribute, on held-out rows, in how often a candidate that was "
            "chosen is ranked first, or among the first few. Counted under encryption; intervals are rough 95 % ones."
            if is_ranking
            else "Differences between the groups of an attribute, on held-out rows: in how often the model says yes "
            "(demographic parity), and in how often among those with the same true label (equalised odds; equal "
            "opportunity looks at the positive ones). Counted under encryption; intervals are rough 95 % ones. A code "
            "that hides an attribute does not make errors equal."
        ),
        columns=("attribute", "decided", "gap", "found", "interval"),
        rows=tuple(rows),
        values=values,
    )


def verdict_finding(
    config: FairVFL,
    read: Mapping[str, Mapping[str, Mapping[str, Any]]],
    counts: Mapping[str, Mapping[str, GroupCounts]],
) -> Finding:
    """Say in plain words what the audit found."""
    said, values = [], {}
    for attribute, by_kind in read.items():
        strong = by_kind.get("strong", {})
        areas = [(float(one["auc"]), kind) for kind, one in by_kind.items() if one.get("auc") is not None]
        if areas:
            (area, best), weak = max(areas), by_kind.get("weak", {}).get("auc")
            word = "hardly" if area <= _HARDLY else "somewhat" if area <= _SOMEWHAT else "well"
            said.append(f"{attribute} can {word} be read from the code: the best attacker ({best}) has AUC {area:.2f}.")
            if isinstance(weak, float) and weak <= _HARDLY and area > _SOMEWHAT:
                said.append(f"A weak attacker would have called it hidden ({weak:.2f}).")
            values[attribute] = {"auc": area, "verdict": word}
        elif strong.get("r2") is not None:
            said.append(f"A strong attacker explains {max(0.0, float(strong['r2'])):.0%} of {attribute}.")
            values[attribute] = {"r2": strong["r2"]}
        if attribute in counts:
            gap = demographic_parity_gap(next(iter(counts[attribute].values())))
            what = "find what they chose ranked first" if config.task == "ranking" else "get a yes"
            if gap.value is not None:
                said.append(f"Its groups {what} at rates up to {gap.value:.2f} apart.")
    if not said:
        said.append("There was no attribute to attack.")
    if config.noise and config.task_cut != "server":
        said.append("The aggregator sees the code without noise, and could read more than these attackers.")
    return Finding(name="audit", title="The audit in plain words", text=" ".join(said), values=values)


def fairness_finding(
    config: FairVFL,
    plain: Mapping[str, Mapping[str, Mapping[str, Any]]],
    read: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    is_enough: bool,
) -> tuple[Finding, str | None]:
    """Compare what is read from this model with a plain one.

    Beside it, return why the model is refused: nothing where it is not, and None where that cannot be told.
    """
    rows, values, left, unknown = [], {}, [], []
    for attribute in config.removed:
        before, after = _reading(plain.get(attribute, {})), _reading(read.get(attribute, {}))
        way = _way_to_chance(plain.get(attribute, {}), read.get(attribute, {}))
        rows.append((attribute, _shown(before), _shown(after), "not known" if way is None else f"{max(0.0, way):.0%}"))
        values[attribute] = {"plain": before, "read": after, "way_to_chance": way}
        if way is None:
            unknown.append(attribute)
        elif way < _LEAST_WAY:
            left.append(attribute)
    is_refused = bool(left) and is_enough and config.safeguard
    text = (
        "A plain model was trained for comparison, with the same rows and settings, but with nothing removed and its "
        "code whole and without noise. Of each attribute the table has what strong attackers read of it: the area "
        "under the curve, where 0.5 is chance, or the share of a number's variance that is explained. A model may be "
        f"called fair if at least {_LEAST_WAY:.0%} of the way from plain to chance is gone for every attribute; all of "
        "it is where what is read is not clearly more than chance."
    )
    is_told = not config.safeguard or (is_enough and not unknown)
    refusal = "" if is_told else None
    if is_refused:
        refusal = (
            f"An audit read almost as much of {' and '.join(left)} from this model as from a plain one, so it is "
            "refused to be used. Train again with removal = 'robust' or a higher removal_weight; the stage sweep shows "
            "what each weight costs. To use it all the same, audit again with safeguard = false."
        )
        text = f"{refusal} {text}"
    elif left:
        why = "the safeguard is off" if is_enough else "there are too few held-out rows to tell"
        text = f"Of {' and '.join(left)} almost as much is read as from a plain model. It is not refused: {why}. {text}"
    finding = Finding(
        name="fairness",
        title="Whether the model may be called fair",
        text=text,
        columns=("attribute", "plain model", "this model", "of the way to chance"),
        rows=tuple(rows),
        values={"attributes": values, "refused": is_refused},
    )
    return finding, refusal


def trade_off_finding(config: FairVFL, points: Sequence[Mapping[str, Any]]) -> Finding:
    """Show what removing attributes costs the task: how well each is read against how good the task is."""
    measure, rows, series = str(points[0]["measure"]), [], []
    plain = next((point for point in points if point["factor"] == 0.0), None)
    verdicts = []
    for point in points:
        read = [_reading(point["read"].get(one, {})) for one in config.attributes]
        ways = [
            None if plain is None else _way_to_chance(plain["read"].get(one, {}), point["read"].get(one, {}))
            for one in config.removed
        ]
        verdicts.append(_verdict(ways, point))
        rows.append((f"{point['factor']:g}", _shown(point["quality"]), *map(_shown, read), verdicts[-1]))
    for attribute in config.attributes:
        found = [(_reading(point["read"].get(attribute, {})), point["quality"]) for point in points]
        known = [(x, y) for x, y in found if x is not None and y is not None]
        marks = [f"{point['factor']:g}" for point, one in zip(points, found, strict=True) if None not in one]
        series.append({"name": attribute, "x": [x for x, _ in known], "y": [y for _, y in known], "marks": marks})
    return Finding(
        name="trade_off",
        title="What removing attributes costs",
        text=(
            "One model was trained for each weight of removal, in multiples of the run's own; 0 is a plain model, with "
            f"a whole code and no noise. The task is measured by {measure} on held-out rows; an attribute by what a "
            "strong attacker reads of it there: the area under its curve, where 0.5 is chance, or the share of a "
            "number's variance that it explains. Of one model each, so differences of a hundredth mean little. Call a "
            f"model fair only if at least {_LEAST_WAY:.0%} of the way from the plain model to chance is gone for every "
            "attribute, and its task is better than one answer for all rows."
        ),
        columns=(
            "times the weights",
            f"task, {measure}",
            *(f"{one}, as read" for one in config.attributes),
            "may be called fair",
        ),
        rows=tuple(rows),
        values={"points": [dict(point) for point in points], "may_be_called_fair": verdicts},
        figures=(
            Figure(
                kind="trade_off",
                title="What is read of an attribute, and what is left of the task",
                values={"series": series[:3], "across": "what a strong attacker reads", "up": f"task, {measure}"},
            ),
        ),
    )


def _reading(read: Mapping[str, Mapping[str, Any]]) -> float | None:
    strong = read.get("strong", {})
    value = strong.get("auc") if strong.get("auc") is not None else strong.get("r2")
    return None if value is None else float(value)


def _way_to_chance(plain: Mapping[str, Any], read: Mapping[str, Any]) -> float | None:
    """Return how much of what a plain model gives away is gone: 0 for nothing, 1 where chance is reached."""
    before, after = _reading(plain), _reading(read)
    if before is None or after is None:
        return None
    chance = 0.5 if plain["strong"].get("auc") is not None else 0.0
    if read["strong"].get("is_above_chance") is False:
        return 1.0
    # Where a plain model gives nothing away, there was nothing to remove, and now there is something.
    return 0.0 if before <= chance else (before - after) / (before - chance)


def _verdict(ways: Sequence[float | None], point: Mapping[str, Any]) -> str:
    if point["factor"] == 0.0:
        return "no: nothing was removed"
    if point["quality"] is not None and point["quality"] <= point["constant"]:
        return "no: the task is lost"
    if point["quality"] is None or any(one is None for one in ways):
        return "not known"
    least = min((one for one in ways if one is not None), default=0.0)
    return f"{'yes' if least >= _LEAST_WAY else 'no'}: {max(0.0, least):.0%} of the way to chance"


def _told(epsilon: float | None) -> str:
    return "not protected" if epsilon is None else f"{epsilon:.3g}"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
