"""What every declaration of a method must say, whatever is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator

from colonnade.messages import PLAIN, Declaration, Dims, Kind, must_warn
from colonnade.testing.cases import Case
from colonnade.testing.expect import require

__all__ = [
    "check_every_field_has_a_rule",
    "check_what_can_be_read_is_warned_of",
    "check_what_is_revealed_stands_alone",
    "require_to_stand_alone",
]

# What means nothing to who reads this sentence alone, in a report or before a word of consent is given.
_POINTS_BACK = re.compile(
    r"(nothing but |nothing more than |exactly )?"
    r"(that|those|these|this|such|it|its|they|them|their|both|the same|the rest|the one before|more|which one)\b"
    r"|(whether|which \w+) it\b|.*\b(every|all) such\b|nothing (else|more)\b",
    re.IGNORECASE,
)


def check_what_can_be_read_is_warned_of(case: Case) -> None:
    """What gives labels, columns or links to who can read it warns of that; readable arrays say what they carry."""
    for one in case.method.declarations:
        if one.protection is not PLAIN:
            continue
        missing = must_warn(one.carries) & ~one.warns
        require(not missing, f"{one.name} can be read and carries {one.carries}, so it must warn of {missing}.")
        for name, kind in _fields("", one.body):
            is_array = any(isinstance(rule, Dims) for rule in kind.rules)
            require(one.carries or not is_array, f"{one.name}.{name} can be read, so {one.name} says what it carries.")


def check_what_is_revealed_stands_alone(case: Case) -> None:
    """What a message reveals is said without pointing to its summary, which consent and report do not show."""
    for one in case.method.declarations:
        require_to_stand_alone(one)


def require_to_stand_alone(declaration: Declaration) -> None:
    """Refuse a sentence on what a message reveals that begins with "that", "it" and the like."""
    require(
        not _POINTS_BACK.match(declaration.reveals),
        f"{declaration.name} reveals '{declaration.reveals}' Name what it is: the sentence is read alone.",
    )


def check_every_field_has_a_rule(case: Case) -> None:
    """No peer can send a number, an array, a list or bytes without bounds; names and short texts have some anyway."""
    for one in case.method.declarations:
        for name, kind in _fields("", one.body):
            require(
                not kind.bounded_by or any(isinstance(rule, kind.bounded_by) for rule in kind.rules),
                f"{one.name}.{name} needs one of these rules: {', '.join(rule.__name__ for rule in kind.bounded_by)}.",
            )


def _fields(name: str, kind: Kind) -> Iterator[tuple[str, Kind]]:
    yield name, kind
    for field, inner in kind.consists_of():
        # A rule for all entries of a list may stand beside that for their number.
        if not any(isinstance(rule, inner.bounded_by) for rule in kind.rules) or list(inner.consists_of()):
            yield from _fields(f"{name}.{field}".strip("."), inner)
