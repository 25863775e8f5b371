"""Both sides of the query benchmark compute the same products."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.form import Findings
from benchmarks.mpdl_speed import SealedQuery, UnpackedQuery, measure_query


@pytest.mark.parametrize("is_encoded", [False, True])
def test_both_sides_give_the_plain_product(is_encoded: bool) -> None:
    random = np.random.default_rng(1)
    row, weights = random.uniform(-4, 5, size=(1, 6)), random.normal(size=(6, 4))
    ours, times = SealedQuery(1024, "insecure_test", 6, 4).play(row, weights)
    theirs, scaled = UnpackedQuery(1024, is_encoded=is_encoded).play(row[0], weights, 2)
    assert np.abs(ours - row @ weights).max() < 1e-4
    assert np.abs(theirs - (row @ weights)[0, :2]).max() < 1e-4
    assert len(times) == len(scaled) == 3


def test_the_findings_hold_the_query_against_python_paillier() -> None:
    findings = Findings()
    measure_query(findings, 1, quick=True)
    assert findings.bars["query_times_faster_than_phe"]["at_least"] == 15
    assert findings.figures["query_largest_error"] < 1e-3
