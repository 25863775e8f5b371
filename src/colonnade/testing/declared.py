"""What every declaration of a method must say, whatever is sent."""

from __future__ import annotations

from collections.abc import Iterator

from colonnade.messages import PLAIN, Dims, Kind, must_warn
from colonnade.testing.cases import Case
from colonnade.testing.expect import require

__all__ = ["check_every_field_has_a_rule", "check_what_can_be_read_is_warned_of"]


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
