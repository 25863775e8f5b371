"""Guards do not refuse what ships: every method with its shipped settings, on small and larger tables."""

from __future__ import annotations

import dataclasses

import pytest

from colonnade.errors import RoleFailed
from colonnade.methods import METHODS
from colonnade.session import Session
from colonnade.testing import Case, train
from tests.conformance.cases import CASES
from tests.worlds import integers_for_ciphertexts

# What a method cannot do without: columns' public bounds, and which columns are sensitive.
_NEEDED = ("bounds", "attributes")


def _shipped() -> list[Case]:
    """Return the first case of every method, with nothing set but what must be."""
    found: dict[type, Case] = {}
    for case in CASES:
        needed = {name: getattr(case.config, name) for name in _NEEDED if hasattr(case.config, name)}
        if hasattr(case.config, "key_size"):
            needed["key_size"] = "insecure_test"
        found.setdefault(type(case.config), dataclasses.replace(case, config=type(case.config)(**needed)))
    return list(found.values())


class _Enough(Exception):
    """The first steps were taken."""


@pytest.mark.parametrize("rows", [1000, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", _shipped(), ids=str)
def test_what_ships_begins_to_train(case: Case, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    next_step = Session.next_step

    def some(session: Session) -> None:
        if session.step == 1:
            raise _Enough
        next_step(session)

    monkeypatch.setattr(Session, "next_step", some)
    with integers_for_ciphertexts(), pytest.raises(RoleFailed) as stopped:
        train(dataclasses.replace(case, rows=rows), compare=False)
    assert isinstance(stopped.value.__cause__, _Enough)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rows", [200, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (1000, 5000))])
@pytest.mark.parametrize("case", _shipped(), ids=str)
def test_what_ships_trains_to_the_end(case: Case, rows: int) -> None:
    with integers_for_ciphertexts():
        run = train(dataclasses.replace(case, rows=rows), compare=False)
    assert run.metrics


def test_every_method_is_among_them() -> None:
    assert {type(case.config) for case in _shipped()} == {method.config for method in METHODS}
