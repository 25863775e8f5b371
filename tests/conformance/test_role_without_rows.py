"""The suite fits a method with a role that holds no table; the toy stands for such methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import tally
from tests.conformance.cases import Case
from tests.conformance.checks import CHECKS, CHECKS_OF_RESULTS

# It learns nothing, so nothing is asked of its scores.
CASE = Case("toy", tally.Tally(), {"label_holder": 1, "feature_holder": 1, "collaborator": 1}, learns=0.0)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    tally.install(monkeypatch)


@pytest.mark.parametrize("check", [*CHECKS, *CHECKS_OF_RESULTS], ids=lambda check: check.__name__)
def test_a_method_with_a_role_without_rows_conforms(check: Callable[[Case, str], None]) -> None:
    check(CASE, "grpc")
