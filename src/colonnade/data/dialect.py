"""How a text file, or text cells of any source, are written: separators, quotes, numbers and dates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import pandas as pd

from colonnade.errors import TableError, did_you_mean

__all__ = ["DateOrder", "Dialect", "dialect_of", "with_dialect"]

DateOrder: TypeAlias = Literal["day first", "month first"]

_DECIMALS, _THOUSANDS = (".", ","), ("", ".", ",", "'", " ")
_KEY = "colonnade dialect"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Say how text is written; what is None was not told, or is nowhere to be seen."""

    separator: str | None = None
    quote: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dates: DateOrder | None = None

    def __post_init__(self) -> None:
        for setting, choices in (("decimal", _DECIMALS), ("thousands", _THOUSANDS), ("dates", get_args(DateOrder))):
            given = getattr(self, setting)
            if given is not None and given not in choices:
                known = ", ".join(f'"{one}"' for one in choices)
                near = did_you_mean(str(given), choices) if setting == "dates" else f"Use one of {known}."
                raise TableError(f"The setting {setting} is {given!r}, which is none that colonnade knows. {near}")
        for setting, shortest in (("separator", 1), ("quote", 0)):
            given = getattr(self, setting)
            if given is not None and not (isinstance(given, str) and shortest <= len(given) <= 1 and given.isascii()):
                raise TableError(f"The setting {setting} is {given!r}. Use one character{' or none' * (not shortest)}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise TableError(
                f"decimal and thousands are both set to '{self.decimal}'. Set one of them, or choose different marks."
            )


def with_dialect(frame: pd.DataFrame, dialect: Dialect) -> pd.DataFrame:
    """Return a frame that remembers how the file it comes from is written."""
    frame.attrs[_KEY] = dialect
    return frame


def dialect_of(frame: pd.DataFrame, **settings: Any) -> Dialect:
    """Return what a frame remembers of its file, with settings."""
    found = frame.attrs.get(_KEY)
    return replace(found if isinstance(found, Dialect) else Dialect(), **settings)
