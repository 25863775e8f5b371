"""What a peer may wrongly send, made from the declarations: every rule of every field is broken, and seen."""

from __future__ import annotations

import pytest
from tests.recorder.observe import observe
from tests.recorder.variants import VARIANTS

from colonnade.messages import ANYONE
from colonnade.methods import METHODS
from colonnade.session import Method
from colonnade.testing.checks import check_lie_ends_a_run
from colonnade.testing.hostile import faults_of, is_refused, overheard


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_broken_rule_is_refused(method: Method) -> None:
    """All of them as they arrive; and one of every message, with every protection that it has, ends its run."""
    told = set()
    for variant in (one for one in VARIANTS if one.method == method.name):
        with overheard() as every:
            observe(variant)
        for heard in every:
            faults = list(faults_of(heard))
            for rule, content in faults:
                assert is_refused(heard, content), f"{heard.declaration.name} was accepted though it breaks {rule}"
            message = (heard.declaration.cls, heard.declaration.protection)
            if faults and heard.declaration.sender != ANYONE and message not in told:
                told.add(message)
                check_lie_ends_a_run(heard, lambda variant=variant: observe(variant))
    assert told
