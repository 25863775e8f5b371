"""Show rows that are pictures: what a holder has of them, and what its generator adds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from colonnade.methods.mpdl.config import MPDL
from colonnade.session import Figure, Finding

__all__ = ["MOST_PICTURES", "pictures_finding"]

MOST_PICTURES = 8
_DIGITS = "0123456789"


def pictures_finding(
    config: MPDL,
    own_units: torch.Tensor,
    own_names: Sequence[str],
    generated: torch.Tensor,
    names: Sequence[str],
    *,
    captions: Sequence[str] = (),
) -> Finding | None:
    """Draw a holder's rows before and after completion; None where columns are no pixels or there is no row.

    Rows are in unit space: the holder's own columns, and those it generates for the same rows.
    """
    count = min(len(own_units), len(generated), MOST_PICTURES)
    if config.image is None or config.image[0] not in (1, 3) or not count:
        return None
    before = torch.full((count, math.prod(config.image)), math.nan, dtype=torch.float64)
    before[:, _places(own_names)] = own_units[:count].double()
    after = before.clone()
    after[:, _places(names)] = generated[:count].double()
    whose = (
        "1 row that only this holder knows: its" if count == 1 else f"{count} rows that only this holder knows: their"
    )
    return Finding(
        name="pictures",
        title="Pictures before and after completion",
        text=f"{whose} own pixels, and the same with generated ones. Nobody here can say how the missing part really "
        "looked. This shows single rows, which nothing else in a report does: think of it before you pass it on.",
        values={"rows": count, "own_pixels": len(own_names), "generated_pixels": len(names)},
        figures=(
            Figure(
                kind="pictures",
                title="Before and after",
                values={
                    "shape": list(config.image),
                    "captions": [*captions[:count], *(str(place + 1) for place in range(len(captions), count))],
                    "rows": [
                        {"name": "own pixels", "pictures": _bytes(before)},
                        {"name": "with generated ones", "pictures": _bytes(after)},
                    ],
                },
            ),
        ),
    )


def _places(names: Sequence[str]) -> list[int]:
    """Return the places that names of pixels end with; whoever arranged the columns has checked them."""
    return [int(name[len(name.rstrip(_DIGITS)) :]) for name in names]


def _bytes(pictures: torch.Tensor) -> list[list[int | None]]:
    """Return pixels from 0 to 255, also generated ones that lie beyond; a missing one is None."""
    levels = (pictures.clamp(0.0, 1.0) * 255).round().tolist()
    return [[None if math.isnan(pixel) else int(pixel) for pixel in picture] for picture in levels]
