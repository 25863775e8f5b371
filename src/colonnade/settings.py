"""Settings that say what they mean, as values of a file and back, with every mistake named.

The text under each field of a dataclass is what every page and command shows.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import math
import re
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from colonnade.errors import ConfigError, did_you_mean

__all__ = [
    "Setting",
    "at_least",
    "config_to_json",
    "configured",
    "described",
    "marked",
    "presets_of",
    "replaced",
    "settings_of",
    "validated",
]

T = TypeVar("T")

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "value"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting, for people who write it into a file."""

    name: str
    takes: str
    """What may be written, such as "list of whole numbers"."""
    default: str
    """The default as JSON, or "none", or "required" where one must be given."""
    meaning: str


def marked(
    default: Any,
    *,
    passes: bool = False,
    batch: bool = False,
    floor: bool = False,
    within: tuple[float, float] | None = None,
) -> Any:
    """Return a setting with marks for a rehearsal, which plays few passes, smaller batches, and does not stop early.

    ``floor`` marks the fewest steps of all passes together. It keeps the setting ``within`` bounds, the lowest and the
    highest.
    """
    marks = {"passes": passes, "batch": batch, "floor": floor, "within": within}
    return dataclasses.field(default=default, metadata=marks)


def at_least(config: Any, lowest: int, *names: str) -> None:
    """Refuse settings, given by their names, that lie below the lowest value they may have."""
    for name in names:
        if getattr(config, name) < lowest:
            raise ConfigError(f"config.{name} must be at least {lowest}. Got {getattr(config, name)} instead.")


def described(kind: type[T]) -> type[T]:
    """Refuse a dataclass in which a field has no text under it, and add these texts to what ``help`` shows."""
    found = _texts(kind)
    if found is None:
        return kind
    bare = [field.name for field in dataclasses.fields(kind) if field.name not in found]  # type: ignore[arg-type]
    if bare:
        raise TypeError(f"{kind.__name__}: say what {', '.join(bare)} means, in a text under the field.")
    lines = [
        textwrap.fill(f"{name}: {text}", 116, initial_indent="  ", subsequent_indent="    ")
        for name, text in found.items()
    ]
    kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__ or ""), "", "Settings:", "", *lines])
    if replaced(kind):
        _refuse_replaced(kind)
    return kind


def replaced(kind: type) -> Mapping[str, str]:
    """Return what to write in place of settings that a dataclass no longer has, where it says so."""
    found: Mapping[str, str] = getattr(kind, "REPLACED", {})
    return found


def _refuse_replaced(kind: type) -> None:
    """Let a dataclass refuse in Python, too, what it no longer has, with what to write in its place."""
    made = vars(kind)["__init__"]

    @functools.wraps(made)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        for name in settings.keys() & replaced(kind).keys():
            raise ConfigError(f"{kind.__name__} has no setting '{name}' any more. {replaced(kind)[name]}")
        made(self, *arguments, **settings)

    setattr(kind, "__init__", init)  # noqa: B010 - mypy takes an assignment for a slip


def settings_of(kind: type) -> list[Setting]:
    """Return the settings that a dataclass has, in the words of a TOML file."""
    hints = get_type_hints(kind)
    texts = _texts(kind) or {}
    return [
        Setting(field.name, _words(hints[field.name]), _default(field), texts.get(field.name, ""))
        for field in dataclasses.fields(kind)
    ]


def _texts(kind: type) -> dict[str, str] | None:
    """Return the texts under the fields of a dataclass and of those it extends; None where the source is not there."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if "__dataclass_fields__" not in vars(cls):
            continue
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):
            return None
        (tree,) = ast.parse(textwrap.dedent(source)).body
        body = getattr(tree, "body", [])
        for here, below in pairwise(body):
            match here, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default_factory() if callable(field.default_factory) else field.default
    if value is dataclasses.MISSING:
        return "required"
    return "none" if value is None else json.dumps(value, default=dataclasses.asdict)


def _words(hint: Any, *, many: bool = False) -> str:
    """Return what a setting takes.

    >>> _words(tuple[int, ...]), _words(Literal["relu", 3]), _words(tuple[tuple[str, ...], ...])
    ('list of whole numbers', '"relu", 3', 'list of lists of texts')
    >>> _words(dict[str, tuple[float, float]]), _words(int | None), _words(str | list[str])
    ('table of lists of 2 numbers', 'whole number', 'text, or list of texts')
    """
    plural = "s" if many else ""
    inner = get_args(hint)
    origin = get_origin(hint)
    if hint in _WORDS:
        return _WORDS[hint] + ("" if hint is bool else plural)
    if origin is Literal:
        return ", ".join(map(json.dumps, inner))
    if origin in (Union, UnionType):
        return ", or ".join(_words(one, many=many) for one in inner if one is not type(None))
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"list{plural} of {len(inner)} {_words(inner[0], many=True)}"
    if origin in (tuple, list):
        return f"list{plural} of {_words(inner[0], many=True)}"
    if inner:
        return f"table{plural} of {_words(inner[-1], many=True)}"
    return f"table{plural}"


# What pydantic says about JSON, in the words of a TOML file.
_PLAIN_WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid array": "a list",
    "an object": "a table",
}


def config_to_json(config: Any) -> dict[str, Any]:
    """Return all settings, defaults included, as JSON values."""
    try:
        document: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), allow_nan=False))
    except (TypeError, ValueError):
        raise ConfigError(
            f"The settings {type(config).__name__} hold something that cannot be written to a file. "
            "Use numbers, texts, lists and tables only."
        ) from None
    return document


def validated(kind: type, document: Mapping[str, Any], where: str) -> Any:
    """Build a dataclass from TOML or JSON values; raise ConfigError that names the key and what it must be."""
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(document, Mapping):
        raise ConfigError(f"[{where}] must be a table of settings. Write [{where}] on a line of its own.")
    known = [field.name for field in dataclasses.fields(kind)]
    for key in document:
        if key not in known:
            remedy = replaced(kind).get(key) or did_you_mean(key, known)
            raise ConfigError(f"There is no setting '{key}' in [{where}]. {remedy}")
    _check_nested(kind, document, where)
    for key, value in document.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"The setting {where}.{key} must be a finite number. Got {value} instead.")
    try:
        # Through JSON, where strict means: "5" and true are no numbers, but a list may be a tuple and 1 a float.
        return TypeAdapter(kind).validate_json(json.dumps(dict(document), default=str), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        # pydantic adds the branches of a union to the path; they mean nothing to a user.
        place = ".".join([where, *(str(part) for part in first["loc"] if str(part) in known or isinstance(part, int))])
        given = json.dumps(first["input"], default=lambda value: type(value).__name__)
        if first["type"] == "missing":
            missing = ".".join([where, *(str(part) for part in first["loc"])])
            raise ConfigError(f"The setting {missing} is missing. Add it to [{where}].") from None
        hint = ""
        if first["type"] == "literal_error" and isinstance(first["input"], str):
            choices = re.findall(r"'([^']*)'", first["ctx"]["expected"])
            hint = " " + did_you_mean(first["input"], choices) if len(choices) > 1 else ""
        said = first["msg"].replace("Input", "it", 1)
        for word, plain in _PLAIN_WORDS.items():
            said = said.replace(word, plain)
        # A table's source may hold a password.
        got = "" if where == "table" else f" Got {given[:80]} instead."
        if len(first["loc"]) == 1 and (meant := _as_meant(first["type"], first["input"])) is not None:
            hint = f" Write {first['loc'][0]} = {meant} in [{where}]."
        raise ConfigError(f"The setting {place} is wrong: {said}.{got}{hint}") from None


def _as_meant(problem: str, given: Any) -> str | None:
    """Return how a value should have been written, where what was written leaves no doubt.

    >>> _as_meant("int_type", "7"), _as_meant("bool_type", "yes"), _as_meant("string_type", 7)
    ('7', 'true', '"7"')
    >>> _as_meant("tuple_type", "splitnn"), _as_meant("int_type", "two"), _as_meant("float_type", "0,003")
    ('["splitnn"]', None, '0.003')
    """
    if problem in ("list_type", "tuple_type") and isinstance(given, str | int | float):
        return json.dumps([given])
    if problem == "string_type" and isinstance(given, int | float):
        return json.dumps(str(given))
    if not isinstance(given, str):
        return None
    text = given.strip().lower()
    if problem == "bool_type":
        return {"true": "true", "yes": "true", "false": "false", "no": "false"}.get(text)
    number = text.replace(",", ".") if problem == "float_type" else text
    pattern = {"int_type": r"-?[0-9]+", "float_type": r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?"}.get(problem)
    return number if pattern and re.fullmatch(pattern, number) else None


def presets_of(kind: type) -> dict[str, str]:
    """Return the named starts that a dataclass of settings has, with what each is: its class methods."""
    found = {name: one.__func__ for name, one in vars(kind).items() if isinstance(one, classmethod) and name[0] != "_"}
    return {name: inspect.cleandoc(one.__doc__ or "").partition("\n")[0] for name, one in found.items()}


def configured(kind: type, document: Mapping[str, Any], where: str) -> Any:
    """Build settings as `validated` does; ``preset`` names what they start from, in place of the defaults."""
    if not isinstance(document, Mapping) or "preset" not in document:
        return validated(kind, document, where)
    rest, known = {key: value for key, value in document.items() if key != "preset"}, presets_of(kind)
    name = document["preset"]
    if name not in known:
        remedy = did_you_mean(str(name), known) if known else "This method has none: remove it."
        raise ConfigError(f"There is no preset {str(name)[:80]!r} of [{where}]. {remedy}")
    typed = validated(kind, rest, where)
    return getattr(kind, name)(**{key: getattr(typed, key) for key in rest})


def _check_nested(kind: type, document: Mapping[str, Any], where: str) -> None:
    """Refuse unknown keys in tables of tables, such as [config.encoders.lab]."""
    hints = get_type_hints(kind)
    for key, value in document.items():
        for inner in get_args(hints[key]):
            if dataclasses.is_dataclass(inner) and isinstance(inner, type) and isinstance(value, Mapping):
                for name, table in value.items():
                    if isinstance(table, Mapping):
                        validated(inner, table, f"{where}.{key}.{name}")
