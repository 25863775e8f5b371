"""How a text file, or text cells of any source, are written: separators, quotes, numbers and dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["DateOrder", "Dialect"]

DateOrder: TypeAlias = Literal["day first", "month first"]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Say how text is written; what is None was not told, or is nowhere to be seen."""

    separator: str | None = None
    quote: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dates: DateOrder | None = None
