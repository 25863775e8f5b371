"""Settings as plain JSON values and back, and rules, with every mistake named."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from colonnade.errors import ConfigError, did_you_mean
from colonnade.messages import Protection, declaration_of
from colonnade.session import CONTROL, Method, Policy

__all__ = ["check_message_names", "config_from_json", "config_to_json", "validated"]

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


def config_from_json(method: Method, document: Mapping[str, Any]) -> Any:
    """Build a method's settings; raise ConfigError for unknown keys and wrong types."""
    return validated(method.config, document, "config")


def validated(kind: type, document: Mapping[str, Any], where: str) -> Any:
    """Build a dataclass from TOML or JSON values; raise ConfigError that names the key and what it must be."""
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(document, Mapping):
        raise ConfigError(f"[{where}] must be a table of settings. Write [{where}] on a line of its own.")
    known = [field.name for field in dataclasses.fields(kind)]
    for key in document:
        if key not in known:
            raise ConfigError(f"There is no setting '{key}' in [{where}]. {did_you_mean(key, known)}")
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
        raise ConfigError(f"The setting {place} is wrong: {said}.{got}{hint}") from None


def _check_nested(kind: type, document: Mapping[str, Any], where: str) -> None:
    """Refuse unknown keys in tables of tables, such as [config.encoders.lab]."""
    import typing

    hints = typing.get_type_hints(kind)
    for key, value in document.items():
        for inner in typing.get_args(hints[key]):
            if dataclasses.is_dataclass(inner) and isinstance(inner, type) and isinstance(value, Mapping):
                for name, table in value.items():
                    if isinstance(table, Mapping):
                        validated(inner, table, f"{where}.{key}.{name}")


def check_message_names(policy: Policy) -> None:
    """Refuse a policy that forbids messages which no method has: a slip there would forbid nothing."""
    if not policy.unsent_messages:
        return
    # Methods need torch, which takes seconds to load; most policies name no message.
    from colonnade import alignment
    from colonnade.methods import known_methods

    known = {one.name for method in known_methods()[0] for one in method.declarations}
    known |= {declaration_of(cls).name for cls in alignment.MESSAGES}
    exempt = {declaration_of(cls).name for cls in CONTROL}
    for name in policy.unsent_messages:
        if name in exempt:
            raise ConfigError(
                f"policy.never_send names '{name}', a message of the session itself. These are exempt: no run could do "
                "without, and they carry nothing derived from a table. Leave it out."
            )
        if name not in known:
            # Capitals are the likeliest slip; and a list of all messages would help nobody.
            by_letters = {one.lower(): one for one in [*known, *Protection]}
            close = get_close_matches(name.lower(), sorted(by_letters), n=1)
            hint = f"Did you mean '{by_letters[close[0]]}'? " if close else ""
            raise ConfigError(
                f"policy.never_send names '{name}', which is neither a protection nor a message of any method. {hint}"
                "'colonnade methods NAME' lists a method's messages."
            )
