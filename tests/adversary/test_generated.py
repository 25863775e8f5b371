"""What a peer may wrongly send, made from the declarations: every rule of every field is broken, and seen."""

from __future__ import annotations

import pytest
from tests.recorder.observe import stages_of
from tests.recorder.variants import VARIANTS

from colonnade.messages import ANYONE
from colonnade.methods import METHODS
from colonnade.session import Method
from colonnade.testing.checks import check_lie_ends_a_run
from colonnade.testing.hostile import faults_of, is_refused, overheard


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_broken_rule_is_refused(method: Method) -> None:
    """Every rule as its message first arrives; and one of each, with every protection that it has, ends its run."""
    seen, told = set(), set()
    for variant in (one for one in VARIANTS if one.method == method.name):
        for _, play in stages_of(variant):
            with overheard() as every:
                play()
            for heard in every:
                faults = list(faults_of(heard))
                message = (heard.declaration.cls, heard.declaration.protection)
                for rule, content in faults:
                    if (*message, rule) not in seen:
                        seen.add((*message, rule))
                        assert is_refused(heard, content), f"{heard.declaration.name} was accepted, breaking {rule}"
                if faults and heard.declaration.sender != ANYONE and message not in told:
                    told.add(message)
                    check_lie_ends_a_run(heard, play)
    assert told
