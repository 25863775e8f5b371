"""Whether a finding's figure has the values that its kind needs: files may have been edited by hand."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from colonnade.errors import RunFolderError
from colonnade.session import Figure

__all__ = ["check_figure"]


def check_figure(figure: Figure) -> None:
    """Refuse a figure that cannot be drawn."""
    checks = {
        "scatter": _is_scatter,
        "trade_off": _is_trade_off,
        "bars": _is_bars,
        "beeswarm": _is_beeswarm,
        "pictures": _are_pictures,
    }
    if figure.kind not in checks:
        raise RunFolderError(f"A report cannot draw a figure of the kind '{figure.kind}'. Known: {', '.join(checks)}.")
    try:
        is_sound = checks[figure.kind](figure.values)
    except (KeyError, TypeError, ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        raise RunFolderError(f"The values of the figure '{figure.title}' do not fit its kind, {figure.kind}.")


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one) for one in values
    )


def _is_scatter(values: Mapping[str, Any]) -> bool:
    series = values["series"]
    return 0 < len(series) <= 3 and all(
        _are_numbers(one["x"]) and _are_numbers(one["y"]) and len(one["x"]) == len(one["y"]) and "name" in one
        for one in series
    )


def _is_trade_off(values: Mapping[str, Any]) -> bool:
    marks = [len(one["marks"]) == len(one["x"]) for one in values["series"]]
    return _is_scatter(values) and all(marks) and isinstance(values["across"], str) and isinstance(values["up"], str)


def _is_bars(values: Mapping[str, Any]) -> bool:
    return len(values["names"]) == len(values["lengths"]) and _are_numbers(values["lengths"])


def _is_beeswarm(values: Mapping[str, Any]) -> bool:
    rows = list(zip(values["names"], values["values"], values["levels"], strict=True))
    return all(_are_numbers(one) and len(one) == len(levels) for _, one, levels in rows)


# Pictures are small: a page holds every pixel of them.
_MOST_PICTURES, _LONGEST_SIDE = 12, 256


def _are_pictures(values: Mapping[str, Any]) -> bool:
    channels, height, width = values["shape"]
    count, rows = len(values["captions"]), values["rows"]
    fits = channels in (1, 3) and 1 <= height <= _LONGEST_SIDE and 1 <= width <= _LONGEST_SIDE
    if not (fits and 0 < count <= _MOST_PICTURES and 0 < len(rows) <= _MOST_PICTURES):
        return False
    return all(
        "name" in row
        and len(row["pictures"]) == count
        and all(_is_picture(one, channels * height * width) for one in row["pictures"])
        for row in rows
    )


def _is_picture(pixels: Any, size: int) -> bool:
    return len(pixels) == size and all(
        pixel is None or (isinstance(pixel, int) and not isinstance(pixel, bool) and 0 <= pixel <= 255)
        for pixel in pixels
    )
