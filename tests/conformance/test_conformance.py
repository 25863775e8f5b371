"""Run every check on every method, in every protection that it offers, over every transport."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from colonnade import alignment
from colonnade.launch import doctor
from colonnade.messages import declaration_of
from colonnade.methods import METHODS
from colonnade.session import CONTROL, Method
from colonnade.testing import CHECKS, OF_POLICIES, Case
from colonnade.testing.declared import require_to_stand_alone
from tests.conformance.cases import CASES, PROTECTIVE

# Rules of policies are about who takes part in what, and lies about single messages: no need for every case of them.
ELSEWHERE = {*OF_POLICIES, "lies end a run"}
# Every case is compared over both transports. How a lost peer and a resume look is the transport's affair as well, so
# that one case of each method plays them over grpc.
COSTLY_OVER_GRPC = {"resume equals undisturbed (grpc)", "peer loss ends cleanly (grpc)"}
FIRST = {case.method.name: case for case in reversed(CASES)}


# Checks change quickest, so that those that look at the same run come one after the other.
@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=f"{case}-{check}")
        for case in CASES
        for check in CHECKS
        if check not in ELSEWHERE and (check not in COSTLY_OVER_GRPC or case is FIRST[case.method.name])
    ],
)
def test_method_conforms(case: Case, check: str) -> None:
    CHECKS[check](case)


@pytest.mark.parametrize("kind", [*CONTROL, *alignment.MESSAGES, doctor.Clock, doctor.Probe])
def test_what_messages_of_no_method_reveal_stands_alone(kind: type) -> None:
    require_to_stand_alone(declaration_of(kind))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_choice_of_protection_is_under_conformance(method: Method) -> None:
    configs = [case.config for case in CASES if case.method is method]
    assert configs
    offered = get_type_hints(method.config)
    for setting in set(PROTECTIVE) & set(offered):
        played = {part for config in configs for part in str(getattr(config, setting)).split("+")}
        assert {part for choice in get_args(offered[setting]) for part in str(choice).split("+")} == played, setting
