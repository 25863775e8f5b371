"""What stands at the top of a report of FairVFL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.methods.fairvfl.worlds import frames, run_of, settings

LABELS, VALUES, KNOWN = "the label of every row of the batch", "Sensitive values at the aggregator", "Known start"


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({"secret_start": True}, {LABELS}),
        ({"secret_start": True, "task_cut": "server"}, {LABELS}),
        ({"secret_start": True, "label_epsilon": None}, {LABELS, VALUES}),
        ({"secret_start": True, "label_epsilon": None, "gradient_clip": 1.0, "gradient_noise": 1.0}, {LABELS}),
        ({"secret_start": False}, {LABELS, KNOWN}),
    ],
    ids=["as it is", "task at the server", "values in the clear", "noise", "known start"],
)
def test_a_report_says_first_what_the_aggregator_could_read(changes: dict[str, Any], marks: set[str]) -> None:
    run = run_of(frames(), settings(epochs=1, **changes))
    said = " ".join(run.marks)
    assert {one for one in (LABELS, VALUES, KNOWN) if one in said} == marks
    protection = run.findings["protection"].text
    assert ("it can read their values" in protection) == (VALUES in marks or KNOWN in marks)


def test_a_report_of_an_audit_says_that_plain_codes_crossed_and_that_a_model_is_refused() -> None:
    model = run_of(frames(), settings(epochs=1))
    for plain in (True, False):
        done = run_of(frames(), settings(epochs=1, audit_plain=plain), stage="audit", after=model)
        # At every party, whatever crossed there.
        for party, own in done.parties.items():
            alone = replace(done, parties={party: own})
            assert any("Codes of a plain model" in one for one in alone.marks) is plain
    assert not any("Refused" in one for one in model.marks)
    model.parties["bank"].refusals["audit"] = "It gives too much away."
    assert "Refused: It gives too much away." in model.marks
