"""Methods do what they did when they were recorded: the same messages, the same models, the same scores."""

from __future__ import annotations

import typing
from functools import cache
from typing import Literal

import pytest

from colonnade.methods import METHODS
from colonnade.session import Method
from tests.recorder.compare import differences
from tests.recorder.observe import environment, observe
from tests.recorder.record import read
from tests.recorder.variants import VARIANTS, Variant

recorded = cache(read)
MOST_SAID = 12


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_method_does_what_it_did_when_it_was_recorded(variant: Variant) -> None:
    known = recorded(variant.method)
    again = f"python -m tests.recorder.record '{variant}'"
    assert variant.name in known["variants"], f"It was never recorded. Run: {again}"
    found = differences(
        known["variants"][variant.name],
        observe(variant),
        within=variant.within,
        is_same_machine=known["environment"] == environment(),
        elsewhere=variant.elsewhere,
    )
    more = [f"… and {len(found) - MOST_SAID} more."] if len(found) > MOST_SAID else []
    assert not found, "\n".join(
        [*found[:MOST_SAID], *more, f"If this is meant, record it in a commit of its own: {again}"]
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_stage_and_every_message_of_a_method_is_recorded(method: Method) -> None:
    variants = [one for one in VARIANTS if one.method == method.name]
    assert set(method.stages) == {stage for one in variants for stage in one.stages}
    stages = [stage for one in recorded(method.name)["variants"].values() for stage in one.values()]
    crossed = {kind for stage in stages for channel in stage["messages"].values() for kind in channel}
    sent = {tuple(kind.split(" ")[1:3]) for kind in crossed}
    assert {(one.name, one.protection.value) for one in method.declarations} - sent == set()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_choice_of_a_setting_is_recorded(method: Method) -> None:
    configs = [one.config for one in VARIANTS if one.method == method.name]
    for name, kind in typing.get_type_hints(method.config).items():
        choices = (True, False) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        missing = [one for one in choices if one not in [getattr(config, name) for config in configs]]
        assert not missing or name == "key_size", f"No variant has {name} = {missing[0]}."
