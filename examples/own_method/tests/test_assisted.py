"""The method does what every method of colonnade must do."""

import pytest
from assisted import Assisted

from colonnade.testing import CHECKS, Case

CASES = (
    Case("in the clear", Assisted(noise=0.0), {"label_holder": 1, "feature_holder": 1}),
    # The noise is secret, so that no two runs are alike.
    Case("noised", Assisted(), {"label_holder": 1, "feature_holder": 2}, learns=0.7, draws_in_secret=True),
)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_assisted(case: Case, check: str) -> None:
    CHECKS[check](case)
