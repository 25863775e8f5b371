"""Run every check on every method over every transport."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.methods import METHODS
from tests.conformance.cases import CASES, TRANSPORTS, Case
from tests.conformance.checks import CHECKS, check_resume_equals_undisturbed

PLAYED = [pytest.param(case, marks=pytest.mark.slow) if case.is_slow else case for case in CASES]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", PLAYED, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_method_conforms(check: Callable[[Case, str], None], case: Case, transport: str) -> None:
    check(case, transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", PLAYED, ids=str)
def test_method_resumes_to_the_same_model(case: Case, transport: str, tmp_path: Path) -> None:
    check_resume_equals_undisturbed(case, transport, tmp_path)


def test_every_method_is_under_conformance() -> None:
    assert {method.config for method in METHODS} == {type(case.config) for case in CASES}
