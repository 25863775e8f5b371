"""Run every check on every method, in every protection that it offers, over every transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args, get_type_hints

import pytest

from colonnade.methods import METHODS
from colonnade.session import Method
from tests.conformance.cases import CASES, PROTECTIVE, TRANSPORTS, Case
from tests.conformance.checks import CHECKS, CHECKS_OF_RESULTS

Check = Callable[[Case, str], None]


# Checks change quickest, so that those that look at the same run come one after the other.
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_method_conforms(case: Case, transport: str, check: Check) -> None:
    check(case, transport)


@pytest.mark.parametrize("check", CHECKS_OF_RESULTS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_of_a_method_conform(case: Case, check: Check) -> None:
    check(case, "memory")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_choice_of_protection_is_under_conformance(method: Method) -> None:
    configs = [case.config for case in CASES if case.method is method]
    assert configs
    offered = get_type_hints(method.config)
    for setting in set(PROTECTIVE) & set(offered):
        played = {part for config in configs for part in str(getattr(config, setting)).split("+")}
        assert {part for choice in get_args(offered[setting]) for part in str(choice).split("+")} == played, setting
