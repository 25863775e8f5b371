"""The suite fits a method with a role that holds no table; the toy stands for such methods."""

from __future__ import annotations

import pytest

from colonnade.testing import CHECKS, OF_POLICIES, Case
from tests import tally

# It learns nothing, so nothing is asked of its scores.
CASE = Case("toy", tally.Tally(), {"label_holder": 1, "feature_holder": 1, "collaborator": 1}, learns=0.0)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    tally.install(monkeypatch)


# Rules of policies are walked over it in test_rules.
@pytest.mark.parametrize("check", [one for one in CHECKS if one not in OF_POLICIES])
def test_a_method_with_a_role_without_rows_conforms(check: str) -> None:
    CHECKS[check](CASE)
