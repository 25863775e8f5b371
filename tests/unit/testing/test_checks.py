"""The checks of `colonnade.testing` fail where they should: each on a toy that is wrong in one way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pytest
from tests import tally

from colonnade.messages import PLAIN, Between, Carries, Dims, Length, Template, Warns, message, template_of
from colonnade.session import Channel
from colonnade.testing import CHECKS, Case, cases, check_method
from colonnade.testing.expect import raising, require

CASE = Case("toy", tally.Tally(), {"label_holder": 1, "feature_holder": 1, "collaborator": 1}, learns=0.0)

Broken = Callable[..., None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Put a toy among the methods whose stages have other messages or other roles."""
    for kept in ("_KNOWN", "_HEARD"):
        monkeypatch.setattr(cases, kept, {})

    def put(*messages: type | Template, **roles: Any) -> None:
        stages = {
            name: dataclasses.replace(stage, messages=(*stage.messages, *messages), roles={**stage.roles, **roles})
            for name, stage in tally.METHOD.stages.items()
        }
        tally.install(monkeypatch, dataclasses.replace(tally.METHOD, stages=stages))

    return put


def fails(check: str, words: str) -> None:
    with raising(AssertionError, words):
        CHECKS[check](CASE)


@message(
    sender="feature_holder",
    receiver="label_holder",
    protection=PLAIN,
    step="tell",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class Codes:
    """Codes of rows. Reveals: columns."""

    values: Annotated[np.ndarray[Any, Any], Dims("rows", 4)]


def test_codes_that_can_be_read_must_warn(broken: Broken) -> None:
    broken(Codes)
    CHECKS["what can be read is warned of"](CASE)
    broken(dataclasses.replace(template_of(Codes), warns={}))
    fails("what can be read is warned of", "Codes can be read and carries .*ROW_CODE.*, so it must warn of .*COLUMNS")


def test_an_array_that_can_be_read_must_say_what_it_carries(broken: Broken) -> None:
    broken(dataclasses.replace(template_of(Codes), warns={}, carries=Carries.NOTHING))
    fails("what can be read is warned of", "Codes.values can be read, so Codes says what it carries")


@pytest.mark.parametrize("words", ["that", "these; no label", "nothing but their number", "codes of every such row"])
def test_what_is_revealed_must_not_point_to_what_is_not_shown(broken: Broken, words: str) -> None:
    broken(dataclasses.replace(template_of(Codes), reveals={None: words}))
    fails("what is revealed stands alone", "Codes reveals .* the sentence is read alone")


@pytest.mark.parametrize(
    ("kind", "is_bounded"),
    [
        (int, False),
        (float, False),
        (bytes, False),
        (np.ndarray[Any, Any], False),
        (np.ndarray[Any, Any] | None, False),
        (tuple[str, ...], False),
        (tuple[int, ...], False),
        (Annotated[tuple[int, ...], Length(0, 3)], False),
        (Annotated[tuple[np.ndarray[Any, Any], ...], Length(0, 3)], False),
        (Annotated[tuple[int, ...], Length(0, 3), Between(0, 9)], True),
        (Annotated[tuple[str, ...], Length(0, 3)], True),
        (Annotated[int, Between(0, 9)] | None, True),
        (bool, True),
        (str, True),
    ],
    ids=str,
)
def test_a_field_that_anything_may_be_in_needs_a_rule(broken: Broken, kind: Any, is_bounded: bool) -> None:
    fields = {"__annotations__": {"value": kind}, "__doc__": "Something. Reveals: it."}
    declare = message(
        sender="feature_holder", receiver="label_holder", protection=PLAIN, step="tell", carries=Carries.SIZE
    )
    broken(declare(type("Loose", (), fields)))
    if is_bounded:
        CHECKS["every field has a rule"](CASE)
    else:
        fails("every field has a rule", "Loose.value needs one of these rules")


def test_a_message_that_is_never_sent_is_found(broken: Broken) -> None:
    broken(Codes)
    fails("every declared message is sent (memory)", "Codes should be sent")


def test_a_receiver_that_does_not_look_is_found(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    broken()
    CHECKS["lies would be refused"](CASE)
    CHECKS["lies end a run"](CASE)
    take = Channel._take

    def credulous(channel: Channel, message_class: type, **known: Any) -> Any:
        return take(channel, channel.declaration(message_class))[1]

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "receive", credulous)
        fails("lies end a run", "nothing was raised")
    monkeypatch.setattr(Between, "wrong", lambda *_: None)
    fails("lies would be refused", "was accepted though it breaks .*: Between")


def test_a_role_without_checkpoints_is_found(broken: Broken) -> None:
    def forgetful(session: Any, holding: Any, config: Any) -> Any:
        session.checkpoint = lambda state: None
        return tally.feature_holder(session, holding, config)

    broken(feature_holder=forgetful)
    fails("resume equals undisturbed (memory)", "A method makes checkpoints")


def test_a_role_that_draws_from_elsewhere_is_found(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**6))
    broken()
    monkeypatch.setattr("colonnade.session.Session.own_seed", lambda *_: next(numbers))
    fails("seed repeats the run", "The same seed should give the same model")


def test_check_method_says_which_check_failed(broken: Broken) -> None:
    broken(dataclasses.replace(template_of(Codes), warns={}))
    with raising(AssertionError, "^Tally: toy: what can be read is warned of: Codes"):
        check_method(CASE)


def test_expectations_are_kept() -> None:
    require(True, "never said")
    with raising(AssertionError, "said"):
        require([], "said")
    with raising(AssertionError, "nothing was raised"), raising(ValueError):
        pass
    with raising(AssertionError, "should say 'this'"), raising(ValueError, "this"):
        raise ValueError("that")
