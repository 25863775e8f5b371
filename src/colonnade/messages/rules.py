"""What a field may hold, said beside its type and checked by the channel on receipt.

``known`` is what the receiver knows of a channel or of one message: dimensions by name, or choices. A dimension is
known because the receiver says so or because a bounded number announced it, never because an array arrived with it.

>>> Between(1, 8).wrong(9, {})
'is 9 where 1 to 8 is accepted'
>>> Dims("rows", 2).wrong(np.zeros((3, 2)), {"rows": 4})
'has the shape (3, 2) where (4, 2) belongs'
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.errors import DeclarationError

__all__ = ["Between", "Binds", "Dims", "Distinct", "Hex", "Is", "Length", "OneOf", "Rule", "is_finite"]

Known = Mapping[str, Any]


class Rule:
    """One thing that is true of every value a field may hold."""

    def wrong(self, value: Any, known: Known) -> str | None:
        """Say what is wrong with a value; None if nothing is."""
        raise NotImplementedError

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give values of the same type that break this rule, for tests of peers that lie."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the canonical text that enters the schema fingerprint."""
        said = (one if isinstance(one, tuple) else (one,) for one in vars(self).values())
        return f"{type(self).__name__}({','.join(str(part) for one in said for part in one)})"


@dataclass(frozen=True, init=False)
class Dims(Rule):
    """The dimensions of an array or ciphertext: numbers, or names of what is known; None where any extent will do.

    A name may be known to stand for several extents, or for none: a tuple. Floats are finite unless ``finite`` says
    otherwise; ``kind`` names the numpy kinds that are accepted, such as "b", or one type, such as "u1" for bytes.
    """

    extents: tuple[str | int | None, ...]
    finite: bool
    kind: str

    def __init__(self, *extents: str | int | None, finite: bool = True, kind: str = "") -> None:
        object.__setattr__(self, "extents", extents)
        object.__setattr__(self, "finite", finite)
        object.__setattr__(self, "kind", kind)

    @property
    def _is_type(self) -> bool:
        return self.kind[-1:].isdigit()

    def wrong(self, value: Any, known: Known) -> str | None:
        """Compare shape and kind, then look for what is not a number."""
        shape = self._shape(known)
        own = tuple(value.shape)
        if len(own) != len(shape) or any(one not in (None, other) for one, other in zip(shape, own, strict=True)):
            return f"has the shape {own} where {str(shape).replace('None', 'any')} belongs"
        array = _array(value)
        if array is None:
            return None
        if self.kind and (array.dtype.str[1:] if self._is_type else array.dtype.kind) not in self.kind:
            return f"is of type {array.dtype}, which is not accepted"
        if self.finite and array.dtype.kind == "f" and not is_finite(array):
            return "holds values that are not numbers. Its training has diverged; lower the learning rate and run again"
        return None

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give one dimension more, one row less along each axis, another kind or type, and a NaN."""
        array = _array(value)
        if array is None:
            return
        yield _like(value, array[None])
        for axis, extent in enumerate(self._shape(known)):
            if extent is not None and array.shape[axis]:
                yield _like(value, np.delete(array, 0, axis))
        if self.kind and "f" not in self.kind:
            yield _like(value, array.astype(np.float64))
        if self._is_type:
            yield _like(value, array.astype(np.uint16))
        if self.finite and array.dtype.kind == "f" and array.size:
            spoiled = array.copy()
            spoiled.reshape(-1)[0] = np.nan
            yield _like(value, spoiled)

    def _shape(self, known: Known) -> tuple[int | None, ...]:
        found = (_known(one, known) for one in self.extents)
        return tuple(extent for one in found for extent in (one if isinstance(one, tuple) else (one,)))


@dataclass(frozen=True)
class Between(Rule):
    """Numbers within bounds, both included: one, or all of an array or tuple. A NaN is within none.

    A ciphertext, which nobody can look into, passes.
    """

    least: float | str
    most: float | str

    def wrong(self, value: Any, known: Known) -> str | None:
        """Compare."""
        if _is_sealed(value):
            return None
        least, most = _known(self.least, known), _known(self.most, known)
        if isinstance(value, int | float):
            return (
                None
                if least <= value <= most
                else f"is {_said(value)} where {_said(least)} to {_said(most)} is accepted"
            )
        array = np.asarray(value)
        fits = not array.size or bool((array >= least).all() and (array <= most).all())
        return None if fits else f"holds numbers outside of {_said(least)} to {_said(most)}"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give what lies just outside, on both sides."""
        if _is_sealed(value):
            return
        outside = [_known(self.least, known) - 1, _known(self.most, known) + 1]
        if isinstance(value, int | float):
            yield from map(type(value), outside)
            if isinstance(value, float):
                yield math.nan
        elif isinstance(value, tuple) and value:
            yield from ((one, *value[1:]) for one in outside)
        elif (array := _array(value)) is not None and array.size:
            for one in outside:
                if array.dtype.kind in "f" or np.can_cast(np.min_scalar_type(int(one)), array.dtype):
                    spoiled = array.copy()
                    spoiled.reshape(-1)[0] = one
                    yield _like(value, spoiled)


@dataclass(frozen=True)
class Binds(Rule):
    """This number is a dimension of this channel from now on. It stands behind Between: who binds must be bounded."""

    name: str

    def wrong(self, value: Any, known: Known) -> str | None:
        """Refuse a second, other announcement."""
        return None if known.get(self.name, value) == value else f"is {value} after {known[self.name]} was announced"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give nothing: what is within bounds may be announced."""
        yield from ()


@dataclass(frozen=True)
class Length(Rule):
    """The number of entries of a tuple, or of characters or bytes."""

    least: int | str
    most: int | str

    def wrong(self, value: Any, known: Known) -> str | None:
        """Compare."""
        least, most = _known(self.least, known), _known(self.most, known)
        return None if least <= len(value) <= most else f"has {len(value)} entries where {least} to {most} are accepted"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give one too many, and one too few."""
        least, most = _known(self.least, known), _known(self.most, known)
        if len(value) and most < 2**16:
            yield (value * (most + 1))[: most + 1]
        if least:
            yield value[: least - 1]


@dataclass(frozen=True)
class Is(Rule):
    """The value that the receiver knows already."""

    name: str

    def wrong(self, value: Any, known: Known) -> str | None:
        """Compare."""
        return None if value == known[self.name] else "is not what this party knows it to be"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give another one."""
        yield _other(value)


@dataclass(frozen=True, init=False)
class OneOf(Rule):
    """One of a few values, or all of a tuple; a single name of what is known stands for the values known by it."""

    values: tuple[Any, ...]
    given: str

    def __init__(self, *values: Any, given: str = "") -> None:
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "given", given)

    def wrong(self, value: Any, known: Known) -> str | None:
        """Look it up."""
        accepted = known[self.given] if self.given else self.values
        every = value if isinstance(value, tuple) else (value,)
        return None if all(one in accepted for one in every) else "is none of the values that are accepted"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give something else of the same type."""
        accepted = known[self.given] if self.given else self.values
        yield max(accepted) + 1 if isinstance(value, int) and not isinstance(value, bool) else _other(value)


@dataclass(frozen=True)
class Distinct(Rule):
    """Entries of a tuple or array of which no two are equal; ``rising`` also puts them in order."""

    rising: bool = False

    def wrong(self, value: Any, known: Known) -> str | None:
        """Look for repetitions."""
        if self.rising:
            array = np.asarray(value)
            return None if bool((array[1:] > array[:-1]).all()) else "is not in rising order"
        return None if len(set(np.asarray(value).tolist())) == len(value) else "names something twice"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give an entry twice."""
        if isinstance(value, tuple) and len(value):
            yield (*value, value[-1])
        elif not isinstance(value, tuple) and len(value) > 1:
            array = value.copy()
            array[1] = array[0]
            yield array


@dataclass(frozen=True)
class Hex(Rule):
    """A text of so many bytes as small hexadecimal digits, such as a digest or a mark."""

    bytes: int

    def wrong(self, value: Any, known: Known) -> str | None:
        """Look at every digit."""
        fits = len(value) == 2 * self.bytes and set(value) <= set("0123456789abcdef")
        return None if fits else f"is not {self.bytes} bytes in hexadecimal digits"

    def hostile(self, value: Any, known: Known) -> Iterator[Any]:
        """Give other digits, and fewer."""
        yield "g" + value[1:]
        yield value[1:]


def is_finite(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether all floats of an array are numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # A sum is finite only where all its terms are; where it is not, they may still be.
    return math.isfinite(total) or bool(np.isfinite(array).all())


def _said(number: float) -> str:
    return (
        f"a number of {number.bit_length()} bits"
        if isinstance(number, int) and abs(number) > 2**64
        else f"{number:.12g}"
    )


def _known(name: Any, known: Known) -> Any:
    if not isinstance(name, str):
        return name
    if name not in known:
        # A fault of ours and not the peer's.
        raise DeclarationError(f"A message is to be checked by '{name}', which neither side has announced or given.")
    return known[name]


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array or a tensor as an array; None for a ciphertext, which nobody can look into."""
    if isinstance(value, np.ndarray):
        return value
    return value.numpy(force=True) if hasattr(value, "numpy") else None


def _is_sealed(value: Any) -> bool:
    """Tell whether a value, of those that have bounds, is a ciphertext."""
    return not isinstance(value, int | float | tuple) and _array(value) is None


def _like(value: Any, array: np.ndarray[Any, Any]) -> Any:
    import sys

    return array if isinstance(value, np.ndarray) else sys.modules["torch"].from_numpy(array)


def _other(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_other, value)) or ("?",)
    if isinstance(value, str | bytes):
        return value + ("?" if isinstance(value, str) else b"?")  # type: ignore[operator]
    return not value if isinstance(value, bool) else value + 1
