"""A label holder that has the owner of a key open something else than agreed: what it gets, and that it is counted.

This stays possible, because a uniform mask hides from the owner what it opens. That it is one opening, and of the
agreed form, is what the owner can see to.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.adversary.hostile import Lie, check_refused, same_key, with_field

import colonnade as cn
from colonnade.errors import OpeningRefused, OutOfStep, PeerFailed, PeerLost, WrongContent
from colonnade.exchanges import weighted_sums
from colonnade.exchanges.weighted_sums import MaskedSums, SumOwner, SumPartner
from colonnade.methods.secure_lr import train
from colonnade.session import Channel, Evaluate
from colonnade.session.checkpoints import CheckpointStore
from colonnade.session.openings import MOST_ATTEMPTS

SOURCE = Path(cn.__file__).parent
CONFIG = cn.SecureLR(
    key_size="insecure_test",
    epochs=2,
    task="binary",
    minimum_support=0,
    coefficient_noise=0.0,
    allow_leak=True,
)


def tables() -> dict[str, cn.PartyTable]:
    draw = np.random.default_rng(8)
    ids = [f"p{number}" for number in range(60)]
    bank = pd.DataFrame({"id": ids, "age": draw.normal(size=60), "y": (draw.uniform(size=60) < 0.5).astype(int)})
    shop = pd.DataFrame({"id": ids, "spent": draw.normal(size=60), "visits": draw.poisson(3.0, size=60)})
    return {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}


def played(folder: Path | None = None) -> cn.Run:
    evaluate = Evaluate(test_fraction=0.2, validation_fraction=0.2)
    return cn.simulate(CONFIG, tables(), seed=3, evaluate=evaluate, folder=folder)


def opened(run: cn.Run) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return what the shop's ledger says that it opened, by attempt."""
    marks = [one.content for one in run.ledgers["shop"].entries if one.kind == "openings"]
    assert all(mark["peer"] == "bank" for mark in marks)
    assert not any(one.kind == "openings" for one in run.ledgers["bank"].entries)
    return [(mark["messages"], mark["numbers"]) for mark in marks]


@pytest.fixture(scope="module")
def honest() -> cn.Run:
    return played()


def test_the_owner_says_how_much_it_opened(honest: cn.Run) -> None:
    """The slopes of two columns in both epochs."""
    assert opened(honest) == [({"MaskedSums": 2}, {"MaskedSums": 2 * 2})]


def test_a_second_opening_in_the_same_step_is_refused() -> None:
    """Where what takes the mask off is due, a label holder asks for more."""
    kept: list[Any] = []
    send = Channel.send

    def keeping(channel: Channel, message: Any) -> None:
        if isinstance(message, MaskedSums):
            kept.append(message.values)
        send(channel, message)

    lie = Lie("bank", "SumShare", lambda _: MaskedSums(kept[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "send", keeping)
        check_refused(played, lie, OutOfStep, "SumShare", seconds=60)


def test_the_owners_code_cannot_open_twice_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = SumOwner.keep

    def twice(sums: SumOwner, release: int) -> None:
        keep(sums, release)
        keep(sums, release)

    monkeypatch.setattr(SumOwner, "keep", twice)
    with pytest.raises(OpeningRefused, match="MaskedSums for 'bank' a second time at step 1"):
        played()


def test_nothing_is_opened_outside_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = SumOwner.seal

    def early(sums: SumOwner, rows: Any) -> None:
        seal(sums, rows)
        sums.keep(0)

    monkeypatch.setattr(SumOwner, "seal", early)
    with pytest.raises(OpeningRefused, match="outside of any step"):
        played()


def test_an_opening_of_another_shape_is_refused() -> None:
    for shape in ((2, 2), (3, 2)):
        lie = Lie("bank", "MaskedSums", with_field(values=functools.partial(same_key, shape=shape)))
        check_refused(played, lie, WrongContent, "shape", seconds=60)


def test_more_scores_than_the_agreed_task_has_are_refused() -> None:
    """Each score would be one number more of every row in every opening."""
    lie = Lie("bank", "TrainingExtent", with_field(scores=2))
    check_refused(played, lie, WrongContent, "scores is 2 where 1 to 1 is accepted", seconds=60)


def test_a_run_that_is_taken_up_again_opens_its_last_steps_once_more_and_says_so(
    honest: cn.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partner that makes a run break off gets the steps since the checkpoint a second time."""
    send, calls = SumPartner.send, []

    def broken(sums: SumPartner, *rest: Any) -> None:
        calls.append(rest)
        if len(calls) == 2:
            raise PeerLost("gone")
        send(sums, *rest)

    monkeypatch.setattr(SumPartner, "send", broken)
    with pytest.raises((PeerLost, PeerFailed), match="gone"):
        played(tmp_path / "run")
    run = played(tmp_path / "run")
    # The first attempt ends in step 2, the second begins after the checkpoint of step 1.
    assert [messages for messages, _ in opened(run)] == [{"MaskedSums": 1}, {"MaskedSums": 1}]
    assert run.ledgers["shop"].openings() == {"bank": {"MaskedSums": 2}}
    assert np.allclose(run.parts["shop"].tensors["weights"], honest.parts["shop"].tensors["weights"])


def test_a_partner_that_breaks_off_again_and_again_gets_no_more_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says each time that it has lost its checkpoints, and would have every step opened anew."""
    monkeypatch.setattr(CheckpointStore, "examine", lambda store: ((), ()))
    # What an honest label holder would refuse itself.
    monkeypatch.setattr(weighted_sums, "MOST_ATTEMPTS", MOST_ATTEMPTS + 1)
    gather = train.gather_scores

    def broken(*_: Any) -> None:
        raise PeerLost("gone")

    monkeypatch.setattr(train, "gather_scores", broken)
    for _ in range(MOST_ATTEMPTS):
        with pytest.raises((PeerLost, PeerFailed), match="gone"):
            played(tmp_path / "run")
    monkeypatch.setattr(train, "gather_scores", gather)
    with pytest.raises(OpeningRefused, match="again and again"):
        played(tmp_path / "run")


def test_all_decryption_of_what_partners_send_is_counted() -> None:
    """Only the piece that counts may use what decrypts."""
    counted = SOURCE / "exchanges" / "secure_product.py"
    others = [*SOURCE.glob("exchanges/**/*.py"), *SOURCE.glob("methods/**/*.py"), *SOURCE.glob("alignment/**/*.py")]
    assert counted in others
    users = set()
    for file in others:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.ImportFrom) else []
            decrypts = isinstance(node, ast.Attribute) and node.attr == "decrypt_integers"
            if decrypts or {"decrypt", "decrypt_fixed", "open_masked"} & set(names):
                users.add(file)
    assert users == {counted}
