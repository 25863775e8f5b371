"""What a peer may wrongly send, made from the declarations: every rule of every field is broken, and seen."""

from __future__ import annotations

import pytest
from tests.conformance.cases import CASES
from tests.recorder.observe import observe
from tests.recorder.variants import VARIANTS, Variant

from colonnade.methods import METHODS
from colonnade.session import Method
from colonnade.testing.checks import check_lie_ends_a_run, lies_in
from colonnade.testing.hostile import faults_of, is_refused, overheard


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_broken_rule_is_refused(variant: Variant) -> None:
    with overheard() as heard:
        observe(variant)
    faults = [(one, rule, content) for one in heard for rule, content in faults_of(one)]
    assert faults or not heard
    for one, rule, content in faults:
        assert is_refused(one, content), f"{one.declaration.name} was accepted though it breaks {rule}"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_lie_ends_a_run(method: Method) -> None:
    """One in every message with every protection that it has, in the first case where it crosses."""
    told = set()
    for case in (case for case in CASES if case.method is method):
        for heard, carry_out in lies_in(case):
            if heard.declaration.schema not in told:
                told.add(heard.declaration.schema)
                check_lie_ends_a_run(heard, carry_out)
    assert told
