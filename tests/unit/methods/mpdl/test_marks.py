"""What stands at the top of a report of MPDL."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.methods.mpdl.worlds import frames, run_of, settings

from colonnade.launch.marks import marks_of

CLEAR, GRADIENT = "Columns in the clear", "Labels can often be told"
INTERACTIVE: dict[str, Any] = {
    "generator": "mlp",
    "generator_epochs": 1,
    "exchange": "interactive",
    "dual_consent": True,
    "key_size": "insecure_test",
}


@pytest.mark.parametrize(
    ("changes", "is_clear"),
    [({}, False), ({"mechanism": "none"}, True), ({**INTERACTIVE, "mechanism": "none"}, True), (INTERACTIVE, False)],
    ids=["released with noise", "released without", "interactive without", "interactive with noise"],
)
def test_a_report_says_first_whether_columns_crossed_as_they_are(changes: dict[str, Any], is_clear: bool) -> None:
    run = run_of(frames(), settings(**{"folds": 0, "epochs": 1, "mechanism": "cell_ldp", **changes}))
    said = " ".join(marks_of(run))
    assert (CLEAR in said) == is_clear
    assert GRADIENT in said
