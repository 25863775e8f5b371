"""What a label holder says about the gradients it sent: how far labels could be told from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colonnade.privacy import MeasuredLeak
from colonnade.session import Finding

__all__ = ["about_columns", "protection_finding"]

_OF_GRADIENTS_ALONE = "The bounds are about gradients alone: what a partner's own columns add is not in them."


def protection_finding(
    measured: Mapping[str, MeasuredLeak], *, is_disguised: bool = False, warnings: Sequence[str] = ()
) -> Finding:
    """Return what was measured for each partner, as a table and as numbers."""
    found = list(measured.values())
    sentences = _about_noise(found[0]) if found else ("Gradients crossed without noise.",)
    what = "AUC" if not found or found[0].measure == "auc" else "explained share"
    columns = (
        "partner",
        f"{what} without noise",
        f"{what} of one release",
        "its bound",
        f"{what} of all releases",
        "its bound",
        f"{what} with the partner's columns",
        "releases of a row",
        "right of the surest 5%",
    )
    return Finding(
        name="label protection",
        title="what the cut gradients gave away about labels",
        text=" ".join([*sentences, *warnings]),
        columns=columns if found else (),
        rows=tuple(_row(partner, one) for partner, one in measured.items()),
        values={
            "disguised": is_disguised,
            "partners": {partner: one.to_json() for partner, one in measured.items()},
        },
    )


def about_columns(measured: MeasuredLeak, stand_in: str) -> str:
    """Say what the measurement makes of a partner's columns, and what it took for them."""
    if measured.with_columns is None:
        return f"{_OF_GRADIENTS_ALONE} A partner's own columns were not counted here."
    return (
        f"{_OF_GRADIENTS_ALONE} Measured with them, the attack also learns from the releases of some rows what columns "
        f"say about others. We do not have the columns: {stand_in} stood in for them, and columns may tell more."
    )


def _about_noise(measured: MeasuredLeak) -> tuple[str, ...]:
    one = f"Each release of a row's gradient has a budget of {measured.budget:g}."
    if measured.measure == "auc":
        bound = (
            f"No attack on one release has an AUC above {measured.bound:.3f}, if gradients of a class are Gaussian. "
            "0.5 is chance."
        )
    else:
        bound = f"A linear estimate from one release explains at most {measured.bound:.3f} of the labels' variance."
    several = (
        f"Rows were released up to {measured.releases_per_row} times; budgets add up, and all releases together are "
        f"bounded by {measured.bound_over_all_releases:.3f}. Partners that put theirs together add up in the same way."
    )
    attack = "What was measured is an attack that knows where the classes lie, but not the noise."
    columns = about_columns(measured, "what we received for these rows")
    if measured.surest_right is None:
        return one, bound, several, columns, attack
    outliers = "No bound holds for single rows: one with a far larger gradient than its class stands out of the noise."
    return one, bound, several, columns, attack, outliers


def _row(partner: str, found: MeasuredLeak) -> tuple[str, ...]:
    measures = (
        found.without_noise,
        found.of_one_release,
        found.bound,
        found.over_all_releases,
        found.bound_over_all_releases,
        found.with_columns,
    )
    return (partner, *map(_shown, measures), str(found.releases_per_row), _shown(found.surest_right))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
