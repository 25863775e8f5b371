"""A run that crashed and went on ends with the same model as one that was never disturbed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from colonnade.errors import DamagedCheckpoint, LedgerUnfinished, PeerFailed, RoleFailed, RunFolderError
from colonnade.launch.run import Run
from colonnade.ledger import Ledger, compare
from colonnade.session import CheckpointStore, ModelPart, Session

Trials = Callable[..., Any]


class Crash(Exception):
    """Stands for a lost machine."""


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Make one party fail when it comes to a step; -1 takes the crash away again."""
    real = Session.next_step

    def arrange(party: str, step: int) -> None:
        def next_step(session: Session) -> None:
            real(session)
            if session.party == party and session.step == step:
                raise Crash("secret 3.14159")

        monkeypatch.setattr(Session, "next_step", real if step < 0 else next_step)

    return arrange


def assert_same_model(left: Run, right: Run) -> None:
    assert left.parts.keys() == right.parts.keys()
    for party in left.parts:
        ours, theirs = left.parts[party], right.parts[party]
        assert ours.document == theirs.document
        assert ours.tensors.keys() == theirs.tensors.keys()
        for name, tensor in ours.tensors.items():
            assert tensor.numpy().tobytes() == theirs.tensors[name].numpy().tobytes(), (party, name)


def without_time(run: Run) -> dict[str, list[dict[str, Any]]]:
    return {
        party: [{key: value for key, value in line.items() if key != "time"} for line in lines]
        for party, lines in run.history.items()
    }


def assert_sound_ledgers(run: Run) -> None:
    ledgers = list(run.ledgers.values())
    for ledger in ledgers:
        ledger.verify()
    for other in ledgers[1:]:
        compare(ledgers[0], other)
        compare(other, ledgers[0])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    from tests.unit.session.trials import Trial

    known: dict[str, Run] = {}

    def get(parties: int = 2, **settings: Any) -> Run:
        key = f"{parties} {sorted(settings.items())}"
        if key not in known:
            known[key] = Trial(tmp_path_factory.mktemp("undisturbed") / "run", parties, settings).run()
        return known[key]

    return get


@pytest.mark.parametrize(
    ("party", "step"), [("bank", 1), ("shop", 1), ("shop", 3), ("bank", 4), ("shop", 5), ("bank", 8), ("bank", 12)]
)
def test_a_crashed_run_ends_with_the_same_model(
    trial: Trials, crash: Any, undisturbed: Any, party: str, step: int
) -> None:
    run = trial()
    crash(party, step)
    with pytest.raises(RoleFailed):
        run.run()
    for folder in ("bank", "shop"):
        ledger = Ledger.read(run.folder / folder / "ledger.jsonl")
        with pytest.raises(LedgerUnfinished):
            ledger.verify()
    crash(party, -1)
    resumed = run.run()
    assert_same_model(resumed, undisturbed())
    assert without_time(resumed) == without_time(undisturbed())
    assert resumed.evaluations["together"].to_json() == undisturbed().evaluations["together"].to_json()
    assert_sound_ledgers(resumed)
    marks = [entry.content for entry in resumed.ledgers["bank"].entries if entry.kind == "resumed"]
    assert [mark["step"] for mark in marks] == ([(step - 1) // 2 * 2] if step > 2 else [])


def test_a_run_that_crashes_again_and_again_still_arrives(trial: Trials, crash: Any, undisturbed: Any) -> None:
    run = trial()
    for party, step in (("shop", 3), ("bank", 3), ("bank", 7), ("shop", 8), ("shop", 11)):
        crash(party, step)
        with pytest.raises(RoleFailed):
            run.run()
    crash("shop", -1)
    resumed = run.run()
    assert_same_model(resumed, undisturbed())
    assert without_time(resumed) == without_time(undisturbed())
    assert_sound_ledgers(resumed)


def test_three_parties_resume_alike(trial: Trials, crash: Any, undisturbed: Any) -> None:
    run = trial(parties=3, optimizer="SGD", optimizer_options={"momentum": 0.9}, checkpoint_every=0)
    crash("telco", 7)
    with pytest.raises(RoleFailed):
        run.run()
    crash("telco", -1)
    resumed = run.run()
    settings = {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}, "checkpoint_every": 0}
    assert_same_model(resumed, undisturbed(parties=3, **settings))
    assert_sound_ledgers(resumed)


def test_a_damaged_newest_checkpoint_is_skipped(trial: Trials, crash: Any, undisturbed: Any) -> None:
    run = trial()
    crash("bank", 7)
    with pytest.raises(RoleFailed):
        run.run()
    newest = run.folder / "shop" / "checkpoints" / "train" / "step-000000006.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[-1] ^= 1
    newest.write_bytes(damaged)
    crash("bank", -1)
    with pytest.warns(DamagedCheckpoint, match=r"'shop' at step 6 is damaged"):
        resumed = run.run()
    marks = [entry.content["step"] for entry in resumed.ledgers["shop"].entries if entry.kind == "resumed"]
    assert marks == [4]
    assert [entry.content["step"] for entry in resumed.ledgers["shop"].entries if entry.kind == "damaged"] == [6]
    assert_same_model(resumed, undisturbed())


def test_a_party_that_lost_all_checkpoints_starts_everyone_over(trial: Trials, crash: Any, undisturbed: Any) -> None:
    run = trial()
    crash("bank", 7)
    with pytest.raises(RoleFailed):
        run.run()
    for path in (run.folder / "shop" / "checkpoints" / "train").iterdir():
        path.unlink()
    crash("bank", 4)
    with pytest.raises(RoleFailed):
        run.run()
    # What the bank kept from before must not have pushed out what was made since.
    assert CheckpointStore(run.folder / "bank" / "checkpoints" / "train").sound_steps() == (2,)
    crash("bank", -1)
    resumed = run.run()
    assert [entry.content["step"] for entry in resumed.ledgers["bank"].entries if entry.kind == "resumed"] == [2]
    assert_same_model(resumed, undisturbed())
    assert without_time(resumed) == without_time(undisturbed())


def test_a_policy_that_refused_at_first_leaves_ledgers_that_agree(trial: Trials) -> None:
    from colonnade import Policy
    from colonnade.errors import PolicyRefused

    run = trial()
    for _ in range(2):
        with pytest.raises(PolicyRefused):
            run.run(policies={"shop": Policy(minimum_shared_rows=10_000)})
    assert_sound_ledgers(run.run())


def test_a_changed_ledger_stops_a_resume(trial: Trials, crash: Any) -> None:
    run = trial()
    crash("bank", 3)
    with pytest.raises(RoleFailed):
        run.run()
    path = run.folder / "shop" / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":9', 1))
    crash("bank", -1)
    from colonnade.errors import LedgerBroken

    with pytest.raises(LedgerBroken, match="does not follow"):
        run.run()


def test_a_finished_run_is_not_run_again(trial: Trials) -> None:
    run = trial(epochs=1)
    run.run()
    with pytest.raises(RunFolderError, match="finished"):
        run.run()


def part(value: float) -> ModelPart:
    return ModelPart({"w": torch.full((3,), value)}, {"at": value})


def test_three_checkpoints_are_kept(tmp_path: Any) -> None:
    store = CheckpointStore(tmp_path / "kept")
    assert store.sound_steps() == ()
    for step in (2, 4, 6, 8, 10):
        store.save(step, part(step))
    assert store.sound_steps() == (6, 8, 10)
    assert len(list((tmp_path / "kept").iterdir())) == 6
    assert store.load(8).document == {"at": 8}


def test_going_back_drops_what_came_after(tmp_path: Any) -> None:
    store = CheckpointStore(tmp_path)
    for step in (6, 8, 10):
        store.save(step, part(step))
    store.save(2, part(2))
    assert store.sound_steps() == (2,)


def test_the_peers_error_names_the_party_and_step(trial: Trials, crash: Any) -> None:
    """The launcher raises the first cause; the peers' ledgers keep what they were told."""
    run = trial()
    crash("shop", 3)
    with pytest.raises(RoleFailed, match="feature_holder 'shop' failed at step 3 with an unforeseen Crash"):
        run.run()
    failed = [one for one in Ledger.read(run.folder / "bank" / "ledger.jsonl").entries if one.kind == "failed"]
    assert [(one.content["party"], one.content["cause"]) for one in failed] == [("shop", "an unforeseen Crash.")]
    assert str(PeerFailed("shop", 3, "an unforeseen Crash.")) == "'shop' stopped at step 3: an unforeseen Crash."
