"""What a method may declare of a role without rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import tally
from tests.unit.session import toys

from colonnade.errors import ConfigError, DeclarationError
from colonnade.session import ALIGN, Role, RunPlan


def plan(**changes: object) -> RunPlan:
    roles = {role: (party,) for role, party in tally.ROLES.items()}
    return RunPlan(**{"name": "run", "method": "tally", "roles": roles, **changes})  # type: ignore[arg-type]


def test_every_role_has_rows_unless_it_says_otherwise() -> None:
    assert Role("helper", "columns").has_rows
    assert toys.method().parties_with_rows(toys.plan()) == ("bank", "shop")
    assert tally.METHOD.parties_with_rows(plan()) == ("bank", "shop")


@pytest.mark.parametrize("lead", ["collaborator", ("label_holder", "collaborator")])
def test_a_role_without_rows_does_not_lead(lead: str | tuple[str, ...]) -> None:
    with pytest.raises(DeclarationError, match="collaborator"):
        replace(tally.METHOD, lead=lead)


def test_a_role_without_rows_is_not_scored() -> None:
    scoring = replace(tally.METHOD.stages["predict"], rows="own", rows_of="collaborator")
    with pytest.raises(DeclarationError, match="collaborator"):
        replace(tally.METHOD, stages=tally.METHOD.stages | {"predict": scoring})


def test_a_role_without_rows_brings_no_labels() -> None:
    with pytest.raises(DeclarationError, match="without rows"):
        Role("collaborator", "labels", has_label=True, has_rows=False)


def test_only_parties_with_rows_look_for_shared_ones() -> None:
    method, agreed = tally.METHOD, plan()
    assert method.are_aligned(agreed, "bank", "shop")
    assert method.are_aligned(agreed, "shop", "bank")
    assert not method.are_aligned(agreed, "bank", "helper")
    assert not method.are_aligned(agreed, "shop", "helper")
    assert method.are_connected(agreed, "shop", "helper")


def test_a_run_needs_the_role_and_an_alignment_does_not() -> None:
    roles = {role: parties for role, parties in plan().roles.items() if role != "collaborator"}
    with pytest.raises(ConfigError, match="exactly one party as collaborator"):
        tally.METHOD.check_roles(plan(roles=roles))
    tally.METHOD.check_roles(plan(roles=roles, stage=ALIGN))


def test_a_role_that_stays_away_from_a_stage_is_not_asked_for_in_it() -> None:
    stage = tally.METHOD.stages["predict"]
    present = {role: code for role, code in stage.roles.items() if role != "collaborator"}
    method = replace(tally.METHOD, stages=tally.METHOD.stages | {"predict": replace(stage, roles=present)})
    scoring = method.in_stage(plan(), "predict")
    assert scoring.parties == ("bank", "shop")
    method.check_roles(scoring)
