"""Launches of a method with a role that holds no table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests import tally
from tests.kills.harness import agreed, free_ports
from tests.parties import with_policies
from tests.unit.launch.test_joining import together

from colonnade import Launch
from colonnade.alignment import MESSAGES
from colonnade.errors import ConfigError, PolicyRefused, RunFolderError
from colonnade.launch.baselines import join_tables
from colonnade.launch.doctor import examine_home
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.identity import make_home, pin_partner
from colonnade.launch.join import Joining
from colonnade.launch.local import play_locally, run_locally
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder, alignment_plan, load_run
from colonnade.launch.simulation import infer_roles, simulate_plan
from colonnade.messages import declaration_of
from colonnade.session import Alignment, Method, ModelPart, Policy, RunPlan, parties_of, read_json

ALIGNING = {declaration_of(one).name for one in MESSAGES}
PARTIES = tuple(tally.ROLES.values())
RUN = """\
[run]
name = "count"
method = "tally"
roles = { label_holder = "bank", feature_holder = "shop", collaborator = "helper" }
seed = 5
"""

SWAPPED = RUN.replace('"shop"', '"?"').replace('"helper"', '"shop"').replace('"?"', '"helper"')


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    tally.install(monkeypatch)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Method]:
    """Change the toy for one test."""

    def changed(**changes: Any) -> Method:
        method = replace(tally.METHOD, **changes)
        tally.install(monkeypatch, method)
        return method

    return changed


def messages_of(run: Run, party: str) -> set[str]:
    return {entry.content["message"] for entry in run.ledgers[party].messages()}


def homes_in(folder: Path) -> dict[str, Any]:
    """Make paired homes of all parties and a run.toml; the helper's has no table."""
    ports = dict(zip(PARTIES, free_ports(len(PARTIES)), strict=True))
    frames = tally.frames()
    for party in PARTIES:
        label = "left" if party == "bank" else None
        address = f"127.0.0.1:{ports[party]}"
        has_table = party in frames
        make_home(
            folder / party, party, address, source="t.csv", id_column="id", label_column=label, has_table=has_table
        )
        if has_table:
            frames[party].to_csv(folder / party / "t.csv", index=False)
    for party in PARTIES:
        for peer in set(PARTIES) - {party}:
            pin_partner(folder / party, (folder / peer / "certificate.pem").read_bytes(), f"127.0.0.1:{ports[peer]}")
    (folder / "run.toml").write_text(RUN)
    return {party: read_party_home(folder / party, party) for party in PARTIES}


# In one process


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_a_party_without_rows_takes_part_and_sees_no_alignment(transport: str) -> None:
    run = tally.simulate(launch=Launch(transport=transport, keep_views=True), compare=True)
    run.verify()
    assert float(run.parts["bank"].tensors["total"]) > float(run.parts["shop"].tensors["total"]) > 0
    assert {"LabelNumber", "FeatureNumber", "Sum"} <= messages_of(run, "helper")
    assert not messages_of(run, "helper") & ALIGNING
    assert messages_of(run, "shop") & ALIGNING
    assert run.rows == {"train": 70, "validation": 10, "test": 20}
    assert b"row-" not in b"".join(frame for _, frame in run.views["helper"])
    assert "helper" not in run.parts
    assert (run.tables["helper"]["rows"], run.tables["helper"]["id"]) == (0, "")


def test_both_transports_give_one_model() -> None:
    first, second = (
        tally.simulate(launch=Launch(transport=transport)).parts["bank"].tensors["total"]
        for transport in ("memory", "grpc")
    )
    assert first == second


def test_tables_that_another_tool_matched_leave_it_out() -> None:
    tables = tally.tables(60)
    shared = sorted(set(tables["bank"].ids) & set(tables["shop"].ids))
    for table in tables.values():
        table.matches = pd.DataFrame({"id": shared})
    run = tally.simulate(tables=tables, launch=Launch(alignment=Alignment(protocol="given")))
    assert sum(run.rows.values()) == len(shared)
    assert "GivenRows" in messages_of(run, "shop")
    assert "GivenRows" not in messages_of(run, "helper")


def test_a_pairwise_method_aligns_pairs_of_parties_with_rows(install: Callable[..., Method]) -> None:
    stages = {name: replace(stage, rows="pairwise") for name, stage in tally.METHOD.stages.items()}
    install(stages=stages)
    assert sum(tally.simulate().rows.values()) == 100
    tables = {**tally.tables(), "baker": tally.tables()["shop"].take(np.arange(50))}
    run = tally.simulate(tables=tables, roles={**tally.ROLES, "feature_holder": ("shop", "baker")})
    assert sum(run.rows.values()) == 100 + 50
    assert not messages_of(run, "helper") & ALIGNING


def test_all_columns_in_one_place_are_those_of_parties_with_rows() -> None:
    plan = tally.simulate().plan
    joined = join_tables(tally.METHOD, plan, tally.tables())
    assert joined.table.feature_names == ("bank: age", "shop: spent")
    assert joined.table.rows == 100


def test_a_table_for_it_is_refused() -> None:
    tables = {**tally.tables(), "helper": tally.tables()["shop"]}
    with pytest.raises(
        ConfigError, match="table was given for 'helper', but the role collaborator of tally holds none"
    ):
        tally.simulate(tables=tables)


@pytest.mark.parametrize("missing", ["bank", "shop"])
def test_a_table_of_another_party_must_be_given(missing: str) -> None:
    tables = {party: table for party, table in tally.tables().items() if party != missing}
    with pytest.raises(ConfigError, match=f"differ in {missing}"):
        tally.simulate(tables=tables)


def test_roles_are_not_guessed_where_one_holds_no_table() -> None:
    with pytest.raises(ConfigError, match=r"collaborator of tally holds no table.*Pass roles="):
        tally.simulate(roles=None)


def test_roles_are_guessed_where_such_a_role_may_stay_empty(install: Callable[..., Method]) -> None:
    roles = tuple(role if role.has_rows else replace(role, at_least=0) for role in tally.METHOD.roles)
    method = install(roles=roles)
    guessed = infer_roles(method, tally.tables())
    assert guessed == {"label_holder": ("bank",), "feature_holder": ("shop",)}


def test_a_run_without_the_role_is_refused() -> None:
    roles = {role: party for role, party in tally.ROLES.items() if role != "collaborator"}
    with pytest.raises(ConfigError, match="needs exactly one party as collaborator"):
        tally.simulate(roles=roles)


def test_it_refuses_by_rules_that_it_could_not_keep() -> None:
    """It is told no counts; a rule that counts rows would be ignored."""
    run, new = tally.simulate(), tally.tables()
    for rule in ("minimum_shared_rows", "predictions_per_day"):
        policies = {"helper": Policy(**{rule: 5})}
        with pytest.raises(PolicyRefused, match=f"'helper' refuses .*{rule} .*: as collaborator it brings no rows"):
            run.predict(with_policies(new, policies)) if rule == "predictions_per_day" else tally.simulate(
                policies=policies
            )
    # Nothing is learned in the one, nothing scored in the other, and it has no part in alignments.
    run.predict(with_policies(new, {"helper": Policy(minimum_shared_rows=500, maximum_alignments=0)}))
    assert tally.simulate(policies={"helper": Policy(predictions_per_day=0, maximum_alignments=0)}).rows["train"] == 70
    with pytest.raises(PolicyRefused, match="'shop' refuses"):
        tally.simulate(policies={"shop": Policy(minimum_shared_rows=500)})


def test_its_other_rules_hold_and_count_only_what_it_sends() -> None:
    with pytest.raises(PolicyRefused, match="'helper' refuses"):
        tally.simulate(policies={"helper": Policy(never_send=("Sum",))})
    # Alignment sends what is MASKED; the helper has no part in it.
    tally.simulate(policies={"helper": Policy(never_send=("MASKED", "AlignmentOffer"))})
    with pytest.raises(PolicyRefused, match="'shop' refuses"):
        tally.simulate(policies={"shop": Policy(never_send=("MASKED",))})


def test_it_brings_no_new_rows_to_be_scored() -> None:
    run = tally.simulate()
    new = {party: table.take(np.arange(30, 60)) for party, table in tally.tables().items()}
    assert len(run.predict(new)) == 10
    with pytest.raises(ConfigError, match="one table each of bank, shop; check helper"):
        run.predict({**new, "helper": new["shop"]})


def test_its_folder_is_read_back_and_resumed(tmp_path: Path) -> None:
    run = tally.simulate(folder=tmp_path / "run")
    assert read_json(tmp_path / "run" / "helper" / "table.json")["rows"] == 0
    again = load_run(tmp_path / "run")
    assert (again.rows, again.tables["helper"]["rows"]) == (run.rows, 0)
    new = {party: table.take(np.arange(30, 60)) for party, table in tally.tables().items()}
    assert len(again.predict(new)) == 10


def test_the_report_says_that_it_holds_no_table(tmp_path: Path) -> None:
    page = tally.simulate().report(tmp_path / "report.html").read_text()
    assert page.count("holds no table") == 1
    assert "Together, bank and shop reach" in page


# In homes


def test_a_home_without_a_table_is_one_for_roles_that_need_none(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    plan = read_run_file(tmp_path / "run.toml")
    assert not homes["helper"].has_table
    assert homes["helper"].table_for(tally.METHOD, plan).rows == 0
    assert homes["shop"].table_for(tally.METHOD, plan).rows == 130
    for read in (homes["helper"].read_table, lambda: homes["helper"].read_new_rows("t.csv", ModelPart({}, {}))):
        with pytest.raises(ConfigError, match=r"party.toml has no \[table\]"):
            read()


def test_a_role_that_needs_a_table_is_refused_without_one(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    (tmp_path / "run.toml").write_text(
        RUN.replace('"shop"', '"x"').replace('"helper"', '"shop"').replace('"x"', '"helper"')
    )
    plan = read_run_file(tmp_path / "run.toml")
    with pytest.raises(
        ConfigError, match=r"'helper' plays feature_holder .* needs a table.*helper/party.toml has no \[table\]"
    ):
        homes["helper"].table_for(tally.METHOD, plan)


def test_a_home_with_a_table_may_play_such_a_role_and_its_table_is_not_read(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    (tmp_path / "run.toml").write_text(
        RUN.replace('"shop"', '"x"').replace('"helper"', '"shop"').replace('"x"', '"helper"')
    )
    (tmp_path / "shop" / "t.csv").unlink()
    assert homes["shop"].table_for(tally.METHOD, read_run_file(tmp_path / "run.toml")).rows == 0


def test_the_doctor_finds_no_fault_in_a_home_without_a_table(tmp_path: Path) -> None:
    homes_in(tmp_path)
    found = {one.check: one for one in examine_home(tmp_path / "helper")}
    assert found["table"].passed
    assert "roles that hold no table" in found["table"].seen
    text = (tmp_path / "helper" / "party.toml").read_text()
    (tmp_path / "helper" / "party.toml").write_text(text.replace("[policy]", "[policy]\nminimum_shared_rows = 9"))
    found = {one.check: one for one in examine_home(tmp_path / "helper")}
    assert "minimum_shared_rows in [policy] refuses all trainings" in found["table"].seen


def test_parties_in_their_own_homes_train_and_score_with_one_that_has_no_table(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    plan = read_run_file(tmp_path / "run.toml")

    def joining(party: str, agreed: RunPlan) -> Joining:
        folder = tmp_path / party / "runs" / "count"
        return Joining(agreed, homes[party], RunFolder(folder, RUN.encode()))

    def train(party: str) -> Run:
        with RunFolder(tmp_path / party / "runs" / "count").held():
            return agreed(joining(party, plan)).run(compare=True)

    runs = together({party: lambda party=party: train(party) for party in PARTIES})
    assert all(isinstance(one, Run) for one in runs.values()), runs
    assert not messages_of(runs["helper"], "helper") & ALIGNING
    pages = {party: (tmp_path / party / "runs" / "count" / "report.html").read_text() for party in PARTIES}
    assert pages["bank"].count("holds no table") == 1
    assert "not known here" in pages["bank"]
    assert "Shared rows</dt>" not in pages["helper"]
    assert "shared rows were split" not in pages["helper"]
    assert "How good the federated model is, only bank can tell" in pages["helper"]

    assert load_run(tmp_path / "helper" / "runs" / "count").parts == {}
    scoring = tally.METHOD.in_stage(plan, "predict")
    sources = {party: str(tmp_path / party / "t.csv") for party in ("bank", "shop")}
    scores = together(
        {party: lambda party=party: agreed(joining(party, scoring)).predict(sources.get(party)) for party in PARTIES}
    )
    assert len(scores["bank"]) == 100
    assert (scores["shop"], scores["helper"]) == (None, None)


def test_its_operator_is_asked_for_what_it_sends_only(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    plan = read_run_file(tmp_path / "run.toml")
    asked = {
        party: {(one.name, peer) for one, peer in Joining(plan, homes[party], RunFolder(tmp_path / "r")).sends()}
        for party in PARTIES
    }
    assert asked["helper"] == {("Sum", "bank")}
    assert ("AlignmentOffer", "bank") in asked["shop"]
    assert ("FeatureNumber", "helper") in asked["shop"]
    assert {receiver for message, receiver in asked["bank"] if message in ALIGNING} == {"shop"}


def test_a_run_that_trained_nothing_cannot_score(tmp_path: Path) -> None:
    homes = homes_in(tmp_path)
    plan = tally.METHOD.in_stage(read_run_file(tmp_path / "run.toml"), "predict")
    joining = agreed(Joining(plan, homes["helper"], RunFolder(tmp_path / "none")))
    with pytest.raises(RunFolderError):
        joining.predict(None)


# As processes


@pytest.mark.slow
def test_processes_of_their_own_end_with_the_model_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally.install_in_processes(monkeypatch, tmp_path)
    homes, file, said = homes_in(tmp_path), tmp_path / "run.toml", list[str]()
    plan = read_run_file(file)
    with RunFolder(tmp_path / "local", file.read_bytes()).held() as held:
        run = run_locally(plan, file, homes, held, compare=True, say=said.append)
    run.verify()
    assert "helper: brings no table" in said
    assert not messages_of(run, "helper") & ALIGNING
    tables = {party: home.table_for(tally.METHOD, plan) for party, home in homes.items()}
    with RunFolder(tmp_path / "threads").held() as held:
        threads = simulate_plan(plan, parties_of(tables), folder=held)
    assert run.parts["bank"].tensors["total"] == threads.parts["bank"].tensors["total"]


@pytest.mark.slow
def test_an_alignment_alone_is_without_it_and_its_result_serves_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally.install_in_processes(monkeypatch, tmp_path)
    homes, file = homes_in(tmp_path), tmp_path / "run.toml"
    plan = alignment_plan(read_run_file(file))
    assert plan.parties == ("bank", "shop")
    with RunFolder(tmp_path / "aligned", file.read_bytes()).held() as held:
        ends = play_locally(plan, file, {party: homes[party] for party in plan.parties}, held)
    assert ends["shop"].overlap == {
        "rows": 130,
        "partners": {"bank": {"rows": 120, "shared": 100}},
        "shared": 100,
        "rest": 30,
        "reused": False,
    }
    with RunFolder(tmp_path / "local", file.read_bytes()).held() as held:
        run = run_locally(read_run_file(file), file, homes, held)
    assert "used again" in run.alignment
    assert not (tmp_path / "helper" / "alignments").exists()
