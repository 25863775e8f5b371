"""The closed set of field kinds a message may have, each with its bytes.

A kind is chosen once, from the annotation of a declared field, and drives both directions. The wire repeats only a
one-byte tag per value as a check; a sender can never choose what the receiver builds.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import struct
import sys
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np

from colonnade.crypto import Ciphertext
from colonnade.errors import DeclarationError, FrameRefused, WrongContent
from colonnade.messages.limits import LIMITS
from colonnade.messages.rules import Between, Binds, Dims, Is, Length, OneOf, Rule
from colonnade.messages.wire import Reader, Writer
from colonnade.text import LONGEST_NAME, is_plain

__all__ = ["Kind", "Longest", "Shapes", "kind_of"]

Shapes = dict[str, tuple[int, ...]]

_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")

# Order is part of the wire format: append only.
_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name) for name in ("<f4", "<f8", "<f2", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1")
)
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_BOOL = np.dtype("|b1")


class Kind(ABC):
    """One kind of value: how it is described, written and read."""

    tag: int
    carries_ciphertext = False

    rules: tuple[Rule, ...] = ()
    """What is true of every value that may arrive."""
    bounded_by: tuple[type[Rule], ...] = ()
    """The rules of which one is needed, so that no peer can send just anything; none where the kind has bounds."""

    @abstractmethod
    def _describe(self) -> str: ...

    @abstractmethod
    def _write(self, value: Any, writer: Writer) -> None: ...

    @abstractmethod
    def _read(self, reader: Reader, depth: int) -> Any: ...

    def describe(self) -> str:
        """Return the canonical text that enters the schema fingerprint."""
        return "".join([self._describe(), *(f" {rule.describe()}" for rule in self.rules)])

    def write(self, value: Any, writer: Writer) -> None:
        """Append the value; raise DeclarationError if it is not of this kind."""
        writer.write(_U8.pack(self.tag))
        self._write(value, writer)

    def read(self, reader: Reader, depth: int) -> Any:
        """Return the next value; raise FrameRefused if it is not of this kind."""
        (tag,) = reader.unpack(_U8)
        if tag != self.tag:
            raise FrameRefused(f"A frame holds a value of kind {tag} where {self.describe()} belongs; it was refused.")
        reader.count(1)
        return self._read(reader, depth)

    def shapes(self, name: str, value: Any, into: Shapes) -> None:  # noqa: B027 - most kinds have none
        """Add the shapes of arrays in this value to what the ledger records."""

    def parts(self, name: str, value: Any) -> Iterator[tuple[str, Kind, Any, Callable[[Any], Any]]]:
        """Give what a value consists of: name, kind, value, and how the whole is made with another in its place.

        The value itself comes first.
        """
        yield name, self, value, lambda other: other

    def consists_of(self) -> Iterator[tuple[str, Kind]]:
        """Give the kinds of which values of this one are made, and their names where they have one."""
        yield from ()

    @property
    def is_looked_into(self) -> bool:
        """Tell whether there are rules for this value or for what it consists of."""
        return bool(self.rules)

    def check(self, value: Any, known: Mapping[str, Any]) -> dict[str, int]:
        """Raise WrongContent for a value that breaks a rule; return what it announces about later ones."""
        bound: dict[str, int] = {}
        for name, kind, part, _ in self.parts("", value):
            for rule in kind.rules:
                wrong = rule.wrong(part, {**known, **bound})
                if wrong is not None:
                    raise WrongContent(f"Its field {name} {wrong}.")
                if isinstance(rule, Binds):
                    bound[rule.name] = part
        return bound

    def announced(self, value: Any) -> dict[str, int]:
        """Return what a value announces about later ones."""
        found = ((rule, part) for _, kind, part, _ in self.parts("", value) for rule in kind.rules)
        return {rule.name: part for rule, part in found if isinstance(rule, Binds)}

    def faults(self, value: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Give values that break one rule each, and which, to test peers that lie: of a tuple in its first entry."""
        known = {**known, **self.announced(value)}
        for name, kind, part, put in self.parts("", value):
            if any(word.isdigit() and word != "0" for word in name.split(".")):
                continue
            for rule in kind.rules:
                for place, other in enumerate(rule.hostile(part, known)):
                    yield f"{name}: {rule.describe()} {place}", put(other)

    def with_rules(self, rules: tuple[Rule, ...]) -> Kind:
        """Return the same kind with rules."""
        made = copy.copy(self)
        made.rules = rules
        return made

    def resolved(self, is_sealed: bool) -> Kind:
        """Return the kind in a run that encrypts what it can, or that does not."""
        return self


def _mismatch(expected: str, value: object) -> DeclarationError:
    return DeclarationError(
        f"A field declared as {expected} was given a {type(value).__name__}. Convert it before building the message."
    )


class _Boolean(Kind):
    tag = 1

    def _describe(self) -> str:
        return "bool"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, bool | np.bool_):
            raise _mismatch("bool", value)
        writer.write(b"\x01" if value else b"\x00")

    def _read(self, reader: Reader, depth: int) -> bool:
        (value,) = reader.unpack(_U8)
        if value > 1:
            raise FrameRefused("A frame holds a truth value that is neither 0 nor 1; it was refused.")
        return value == 1


class _Integer(Kind):
    tag = 2
    bounded_by = (Between, Is, OneOf)

    def _describe(self) -> str:
        return "int"

    def _write(self, value: Any, writer: Writer) -> None:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise _mismatch("int", value)
        number = int(value)
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1
        if size > LIMITS.integer_bytes:
            raise DeclarationError(f"An int of {size} bytes cannot be sent; {LIMITS.integer_bytes} is the most.")
        writer.write(_U32.pack(size) + number.to_bytes(size, "little", signed=True))

    def _read(self, reader: Reader, depth: int) -> int:
        (size,) = reader.unpack(_U32)
        if not 1 <= size <= reader.limits.integer_bytes:
            raise FrameRefused(f"A frame holds an integer of {size} bytes; it was refused.")
        number = int.from_bytes(reader.take(size), "little", signed=True)
        if (number if number >= 0 else ~number).bit_length() // 8 + 1 != size:
            raise FrameRefused("A frame holds an integer that is longer than it needs to be; it was refused.")
        return number


class _Number(Kind):
    tag = 3
    bounded_by = (Between, Is, OneOf)

    def _describe(self) -> str:
        return "float"

    def _write(self, value: Any, writer: Writer) -> None:
        if isinstance(value, bool) or not isinstance(value, float | int | np.floating):
            raise _mismatch("float", value)
        try:
            writer.write(_F64.pack(float(value)))
        except OverflowError:
            raise DeclarationError("An int beyond the range of floats was given for a float field.") from None

    def _read(self, reader: Reader, depth: int) -> float:
        value: float = _F64.unpack(reader.take(_F64.size))[0]
        return value


class _Bytes(Kind):
    tag = 4
    bounded_by = (Length, Is)

    def _describe(self) -> str:
        return "bytes"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, bytes):
            raise _mismatch("bytes", value)
        writer.write(_U64.pack(len(value)))
        writer.write_array(memoryview(value))

    def _read(self, reader: Reader, depth: int) -> bytes:
        (size,) = reader.unpack(_U64)
        reader.align()
        return bytes(reader.take(size))


@dataclass(frozen=True)
class Longest:
    """How many characters a text field may have at most, where it is no name: ``Annotated[str, Longest(1000)]``."""

    characters: int


class _Text(Kind):
    """A text that is plain, so that whoever shows it only shows it, and no longer than its field allows."""

    tag = 5

    def __init__(self, longest: int = LONGEST_NAME) -> None:
        self.longest = longest

    def _describe(self) -> str:
        return "str" if self.longest == LONGEST_NAME else f"str({self.longest})"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, str):
            raise _mismatch("str", value)
        if not is_plain(value):
            raise DeclarationError(
                "A name or text with invisible characters, such as control characters, cannot be sent. Rename it."
            )
        content = value.encode("utf-8")
        if len(value) > self.longest or len(content) > LIMITS.text_bytes:
            raise DeclarationError(
                f"A name or text of {len(value)} characters cannot be sent where {self.longest} are the most. Shorten "
                "it."
            )
        writer.write(_U32.pack(len(content)) + content)

    def _read(self, reader: Reader, depth: int) -> str:
        (size,) = reader.unpack(_U32)
        if size > reader.limits.text_bytes:
            raise FrameRefused(f"A frame holds a text of {size} bytes; it was refused.")
        try:
            text = str(reader.take(size), "utf-8")
        except UnicodeDecodeError:
            raise FrameRefused("A frame holds a text that is not UTF-8; it was refused.") from None
        if len(text) > self.longest or not is_plain(text):
            raise WrongContent(f"It holds a text of more than {self.longest} characters, or with invisible ones.")
        return text


class _Array(Kind):
    tag = 6
    bounded_by = (Dims,)

    def _describe(self) -> str:
        return "array"

    def _write(self, value: Any, writer: Writer) -> None:
        # What a masked array hides is still in its memory and would be sent.
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise _mismatch("array", value)
        if value.ndim > LIMITS.dimensions:
            raise DeclarationError(
                f"An array of {value.ndim} dimensions cannot be sent; at most {LIMITS.dimensions} can."
            )
        dtype = value.dtype.newbyteorder("<")
        code = _DTYPE_CODES.get(dtype)
        if code is None:
            raise DeclarationError(
                f"An array of type {value.dtype} cannot be sent. Use floats, integers or booleans of a fixed size."
            )
        # ascontiguousarray would turn a scalar array into one of length 1.
        data = value.astype(dtype, order="C", copy=not value.flags.c_contiguous)
        writer.write(struct.pack(f"<BB{data.ndim}Q", code, data.ndim, *data.shape))
        writer.write_array(data.reshape(-1).view(np.uint8).data if data.size else memoryview(b""))

    def _read(self, reader: Reader, depth: int) -> np.ndarray[Any, Any]:
        code, dimensions = reader.take(2)
        if code >= len(_DTYPES) or dimensions > reader.limits.dimensions:
            raise FrameRefused("A frame holds an array of unknown type or too many dimensions; it was refused.")
        shape = struct.unpack(f"<{dimensions}Q", reader.take(8 * dimensions))
        if any(extent > reader.limits.dimension for extent in shape):
            raise FrameRefused("A frame holds an array with an impossible extent; it was refused.")
        dtype = _DTYPES[code]
        reader.align()
        size = math.prod(shape)
        data = reader.take(size * dtype.itemsize)
        if size == 0:
            # numpy multiplies the extents that are not zero and may refuse their product.
            if math.prod(extent for extent in shape if extent) * dtype.itemsize >= 2**62:
                raise FrameRefused("A frame holds an array with an impossible extent; it was refused.")
            return np.empty(shape, dtype)
        if dtype == _BOOL and np.frombuffer(data, np.uint8).max() > 1:
            raise FrameRefused("A frame holds a truth value that is neither 0 nor 1; it was refused.")
        return np.frombuffer(data, dtype).reshape(shape)

    def shapes(self, name: str, value: Any, into: Shapes) -> None:
        into[name] = tuple(value.shape)


class _Tensor(_Array):
    """A torch tensor; on the wire the same as an array.

    torch is reached through the module that declared the field, so that this room never imports it.
    """

    tag = 7

    def _describe(self) -> str:
        return "tensor"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, sys.modules["torch"].Tensor):
            raise _mismatch("tensor", value)
        try:
            array = value.numpy(force=True)
        except (TypeError, RuntimeError):
            raise DeclarationError(
                f"A tensor of type {value.dtype} cannot be sent. Convert it to float32 or float64 first."
            ) from None
        super()._write(array, writer)

    def _read(self, reader: Reader, depth: int) -> Any:
        torch = sys.modules["torch"]
        array = super()._read(reader, depth)
        if not array.flags.writeable:
            array = array.copy()
        return torch.from_numpy(array)


class _Optional(Kind):
    tag = 8

    def __init__(self, inner: Kind) -> None:
        self._inner = inner
        self.carries_ciphertext = inner.carries_ciphertext

    def _describe(self) -> str:
        return f"optional({self._inner.describe()})"

    def _write(self, value: Any, writer: Writer) -> None:
        writer.write(b"\x00" if value is None else b"\x01")
        if value is not None:
            self._inner.write(value, writer)

    def _read(self, reader: Reader, depth: int) -> Any:
        (present,) = reader.unpack(_U8)
        if present > 1:
            raise FrameRefused("A frame holds an option that is neither present nor absent; it was refused.")
        return self._inner.read(reader, _deeper(reader, depth)) if present else None

    def shapes(self, name: str, value: Any, into: Shapes) -> None:
        if value is not None:
            self._inner.shapes(name, value, into)

    def parts(self, name: str, value: Any) -> Iterator[tuple[str, Kind, Any, Callable[[Any], Any]]]:
        if value is not None:
            yield from self._inner.parts(name, value)

    def consists_of(self) -> Iterator[tuple[str, Kind]]:
        yield "", self._inner

    @property
    def is_looked_into(self) -> bool:
        return self._inner.is_looked_into

    def with_rules(self, rules: tuple[Rule, ...]) -> Kind:
        return _Optional(self._inner.with_rules(rules))

    def resolved(self, is_sealed: bool) -> Kind:
        return _Optional(self._inner.resolved(is_sealed))


class _Sequence(Kind):
    """A tuple of any length whose items are of one kind."""

    tag = 9
    bounded_by = (Length, Is)

    def __init__(self, inner: Kind) -> None:
        self._inner = inner
        self.carries_ciphertext = inner.carries_ciphertext

    def _describe(self) -> str:
        return f"sequence({self._inner.describe()})"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, tuple):
            raise _mismatch("tuple", value)
        if len(value) > LIMITS.entries:
            raise DeclarationError(f"A tuple of {len(value)} entries cannot be sent; use an array.")
        writer.write(_U32.pack(len(value)))
        for item in value:
            self._inner.write(item, writer)

    def _read(self, reader: Reader, depth: int) -> tuple[Any, ...]:
        (size,) = reader.unpack(_U32)
        if size > reader.limits.entries:
            raise FrameRefused(f"A frame holds a sequence of {size} entries; it was refused.")
        if size > reader.remaining:
            raise FrameRefused(f"A frame promises {size} entries where {reader.remaining} bytes are left; refused.")
        below = _deeper(reader, depth)
        return tuple(self._inner.read(reader, below) for _ in range(size))

    def shapes(self, name: str, value: Any, into: Shapes) -> None:
        for position, item in enumerate(value):
            self._inner.shapes(f"{name}.{position}", item, into)

    def parts(self, name: str, value: Any) -> Iterator[tuple[str, Kind, Any, Callable[[Any], Any]]]:
        yield name, self, value, lambda other: other
        if self._inner.is_looked_into:
            for place, item in enumerate(value):
                for where, kind, part, put in self._inner.parts(f"{name}.{place}", item):
                    yield where, kind, part, _in_tuple(value, place, put)

    def consists_of(self) -> Iterator[tuple[str, Kind]]:
        yield "", self._inner

    @property
    def is_looked_into(self) -> bool:
        return bool(self.rules) or self._inner.is_looked_into

    def resolved(self, is_sealed: bool) -> Kind:
        return _Sequence(self._inner.resolved(is_sealed)).with_rules(self.rules)


class _Record(Kind):
    tag = 10

    def __init__(self, record: type, kinds: Iterable[tuple[str, Kind]]) -> None:
        self._record, self._kinds = record, tuple(kinds)
        self.carries_ciphertext = bool(self._kinds) and all(kind.carries_ciphertext for _, kind in self._kinds)

    def _describe(self) -> str:
        return "record(" + ",".join(f"{name}:{kind.describe()}" for name, kind in self._kinds) + ")"

    def _write(self, value: Any, writer: Writer) -> None:
        if type(value) is not self._record:
            raise _mismatch(self._record.__name__, value)
        for name, kind in self._kinds:
            kind.write(getattr(value, name), writer)

    def _read(self, reader: Reader, depth: int) -> Any:
        below = _deeper(reader, depth)
        return self._record(*(kind.read(reader, below) for _, kind in self._kinds))

    def shapes(self, name: str, value: Any, into: Shapes) -> None:
        for field, kind in self._kinds:
            kind.shapes(f"{name}.{field}" if name else field, getattr(value, field), into)

    def parts(self, name: str, value: Any) -> Iterator[tuple[str, Kind, Any, Callable[[Any], Any]]]:
        for field, kind in self._kinds:
            if kind.is_looked_into:
                for where, inner, part, put in kind.parts(f"{name}.{field}" if name else field, getattr(value, field)):
                    yield where, inner, part, _in_record(value, field, put)

    def consists_of(self) -> Iterator[tuple[str, Kind]]:
        yield from self._kinds

    @property
    def is_looked_into(self) -> bool:
        return any(kind.is_looked_into for _, kind in self._kinds)

    def resolved(self, is_sealed: bool) -> Kind:
        return _Record(self._record, [(name, kind.resolved(is_sealed)) for name, kind in self._kinds])


class _Sealable(Kind):
    """An array that is a ciphertext in a run that encrypts it; only a resolved one can cross."""

    tag = 0

    def __init__(self, sealed: Kind, clear: Kind) -> None:
        self._sealed, self._clear = sealed, clear

    def _describe(self) -> str:
        return f"{self._sealed.describe()} or {self._clear.describe()}"

    def _write(self, value: Any, writer: Writer) -> None:
        raise DeclarationError("A message whose content may be encrypted or not crosses in runs that say which.")

    def _read(self, reader: Reader, depth: int) -> Any:
        raise DeclarationError("A message whose content may be encrypted or not crosses in runs that say which.")

    def resolved(self, is_sealed: bool) -> Kind:
        return (self._sealed if is_sealed else self._clear).with_rules(self.rules)


class _Cipher(Kind):
    tag = 11
    bounded_by = (Dims,)
    carries_ciphertext = True

    def __init__(self, cipher: type[Ciphertext]) -> None:
        self._cipher = cipher

    def _describe(self) -> str:
        return f"ciphertext({self._cipher.__name__})"

    def _write(self, value: Any, writer: Writer) -> None:
        if not isinstance(value, self._cipher):
            raise _mismatch(self._cipher.__name__, value)
        content = value.to_bytes()
        writer.write(_U64.pack(len(content)))
        writer.write_array(memoryview(content))

    def _read(self, reader: Reader, depth: int) -> Ciphertext:
        (size,) = reader.unpack(_U64)
        reader.align()
        try:
            return self._cipher.from_bytes(bytes(reader.take(size)))
        except ValueError:
            raise FrameRefused("A frame holds bytes that are not a ciphertext of this run; it was refused.") from None

    def shapes(self, name: str, value: Any, into: Shapes) -> None:
        into[name] = tuple(value.shape)


def _deeper(reader: Reader, depth: int) -> int:
    if depth >= reader.limits.depth:
        raise FrameRefused(f"A frame is nested deeper than {reader.limits.depth}; it was refused.")
    return depth + 1


def _in_tuple(whole: tuple[Any, ...], place: int, put: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda other: (*whole[:place], put(other), *whole[place + 1 :])


def _in_record(whole: Any, field: str, put: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda other: replace(whole, **{field: put(other)})


def _kinds_of_fields(record: type, depth: int) -> list[tuple[str, Kind]]:
    try:
        hints = typing.get_type_hints(record, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise DeclarationError(f"The annotations of {record.__name__} cannot be understood: {error}.") from None
    return [
        (field.name, kind_of(hints[field.name], f"{record.__name__}.{field.name}", depth))
        for field in dataclass_fields(record)
    ]


_SIMPLE: dict[object, type[Kind]] = {bool: _Boolean, int: _Integer, float: _Number, bytes: _Bytes, str: _Text}


def kind_of(annotation: Any, where: str, depth: int = 0) -> Kind:
    """Return the kind for a field's annotation; raise DeclarationError for anything outside the closed set."""
    if depth > LIMITS.depth:
        raise DeclarationError(f"The field {where} is nested deeper than {LIMITS.depth}, or contains itself.")
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]()
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(annotation, where, depth)
    if annotation is np.ndarray or origin is np.ndarray:
        return _Array()
    torch = sys.modules.get("torch")
    if torch is not None and annotation is torch.Tensor:
        return _Tensor()
    if isinstance(annotation, type) and issubclass(annotation, Ciphertext):
        return _Cipher(annotation)
    if isinstance(annotation, type) and "__is_record__" in vars(annotation):
        return _Record(annotation, _kinds_of_fields(annotation, depth + 1))
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        inner = functools.reduce(operator.or_, (one for one in arguments if one is not type(None)))
        return _Optional(kind_of(inner, where, depth + 1))
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2:
        kinds = [kind_of(one, where, depth + 1) for one in arguments]
        sealed, clear = sorted(kinds, key=lambda kind: not kind.carries_ciphertext)
        if sealed.carries_ciphertext and not clear.carries_ciphertext:
            return _Sealable(sealed, clear)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _Sequence(kind_of(arguments[0], where, depth + 1))
    raise DeclarationError(
        f"The field {where} is annotated {annotation!r}, which no message can carry. Use bool, int, float, str, bytes, "
        "Annotated[X, rules], numpy.ndarray, torch.Tensor, a Ciphertext, a Ciphertext | numpy.ndarray, a @record, "
        "tuple[X, ...] or X | None."
    )


def _annotated(annotation: Any, where: str, depth: int) -> Kind:
    inner, *beside = typing.get_args(annotation)
    rules = tuple(one for one in beside if isinstance(one, Rule))
    longest = [one.characters for one in beside if isinstance(one, Longest)]
    if len(rules) + len(longest) != len(beside) or (longest and inner is not str):
        raise DeclarationError(f"The field {where} is annotated with something that is no rule for it.")
    for place, rule in enumerate(rules):
        if isinstance(rule, Binds) and not any(isinstance(one, Between) for one in rules[:place]):
            raise DeclarationError(f"The field {where} announces {rule.name} without bounds. Put Between before it.")
    kind = _Text(*longest) if longest else kind_of(inner, where, depth)
    return kind.with_rules(rules)
