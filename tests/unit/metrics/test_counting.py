"""Our counts and ranks equal scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from colonnade.metrics.counting import area_under_roc, confusion_counts, f1_by_class, log_loss


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(2, 5), st.booleans())
def test_counts_and_ranks_equal_the_reference(seed: int, rows: int, classes: int, has_ties: bool) -> None:
    generator = np.random.default_rng(seed)
    truth, called = generator.integers(classes, size=(2, rows))
    scores = generator.random(rows)
    scores = np.round(scores, 1) if has_ties else scores
    if len(np.unique(truth > 0)) == 2:
        assert area_under_roc(truth > 0, scores) == pytest.approx(reference.roc_auc_score(truth > 0, scores))
    counts = confusion_counts(truth, called, classes)
    assert (counts == reference.confusion_matrix(truth, called, labels=range(classes))).all()
    expected = reference.f1_score(truth, called, labels=range(classes), average=None, zero_division=0.0)
    assert f1_by_class(counts) == pytest.approx(expected)
    probability = generator.dirichlet(np.ones(classes), size=rows)
    probability[0] = np.eye(classes)[0]  # sure, and perhaps wrong
    assert log_loss(truth, probability) == pytest.approx(
        reference.log_loss(truth, probability, labels=range(classes)), rel=1e-9
    )
