"""A label holder that has the owner of a key open something else than agreed: what it gets, and that it is counted.

This stays possible, because a uniform mask hides from the owner what it opens. What one opening yields is pinned here
and told in docs/limits.md; that it is one, is what the owner can see to.
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
from colonnade.crypto import FixedPoint
from colonnade.errors import OpeningRefused, OutOfStep, PeerFailed, PeerLost, WrongContent
from colonnade.exchanges.open_masked import ask_to_open, take_opened
from colonnade.exchanges.secure_linear import LinearOwner, LinearPartner, MaskedLogits, OpenedLogits
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
# One column in the lowest 28 bits of the number that is opened for a row, the next one above it.
COLUMN_BITS = 28


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
    """36 training rows in the second epoch, and a gradient of two columns in both."""
    assert opened(honest) == [({"MaskedLogits": 1, "MaskedGradient": 2}, {"MaskedLogits": 36, "MaskedGradient": 2 * 2})]


def dishonest_in_step(step: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let the label holder hide two columns of a batch behind the mask of its part of the logits, once."""
    seen: dict[str, Any] = {"calls": 0}
    ask, logits, answer = LinearPartner.ask, LinearPartner.logits, LinearOwner.answer

    def asked(partner: LinearPartner, batch: Any) -> Any:
        seen["calls"] += 1
        if seen["calls"] != step:
            return ask(partner, batch)
        share = partner._forward_share()
        more = np.array([[1], [1 << COLUMN_BITS]], dtype=object)
        wanted = FixedPoint.share(share.integers + more, share.fraction_bits, share.bound)
        seen["mask"] = ask_to_open(partner._peer, MaskedLogits, batch.columns @ wanted)
        return seen["mask"]

    def taken(partner: LinearPartner, mask: Any) -> Any:
        if mask is not seen.get("mask"):
            return logits(partner, mask)
        seen["read"] = [int(one) for one in take_opened(partner._peer, OpenedLogits, mask).integers[:, 0]]
        # Of this batch's scores it has learned nothing.
        return np.zeros(mask.layout.shape)

    def answered(owner: LinearOwner, inputs: FixedPoint) -> None:
        seen.setdefault("inputs", inputs)
        answer(owner, inputs)

    patch.setattr(LinearPartner, "ask", asked)
    patch.setattr(LinearPartner, "logits", taken)
    patch.setattr(LinearOwner, "answer", answered)
    return seen


def test_one_dishonest_opening_reads_two_columns_of_a_batch_and_is_counted_as_the_honest_one(
    honest: cn.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first step the weights are zero. Whoever sends no gradient keeps them there."""
    seen, teach = dishonest_in_step(1, monkeypatch), LinearPartner.teach_together
    nothing = lambda partner, batches, steps: teach(partner, batches, [0 * one for one in steps])  # noqa: E731
    monkeypatch.setattr(LinearPartner, "teach_together", nothing)
    run = played()
    half = 1 << (COLUMN_BITS - 1)
    first = [(one + half) % (1 << COLUMN_BITS) - half for one in seen["read"]]
    second = [(one - low) >> COLUMN_BITS for one, low in zip(seen["read"], first, strict=True)]
    assert np.stack([first, second], axis=1).tolist() == seen["inputs"].integers.tolist()
    assert opened(run) == opened(honest)


def test_a_second_opening_in_the_same_step_is_refused() -> None:
    """Where the gradient is due, a label holder asks for more logits."""
    kept: list[Any] = []
    send = Channel.send

    def keeping(channel: Channel, message: Any) -> None:
        if isinstance(message, MaskedLogits):
            kept.append(message.values)
        send(channel, message)

    lie = Lie("bank", "MaskedGradient", lambda _: MaskedLogits(kept[0]), place=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "send", keeping)
        check_refused(played, lie, OutOfStep, "MaskedGradient", seconds=60)


def test_the_owners_code_cannot_open_twice_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    honest_answer = LinearOwner.answer

    def twice(owner: LinearOwner, inputs: FixedPoint) -> None:
        honest_answer(owner, inputs)
        honest_answer(owner, inputs)

    monkeypatch.setattr(LinearOwner, "answer", twice)
    with pytest.raises(OpeningRefused, match="MaskedLogits for 'bank' a second time at step 2, part 0"):
        played()


def test_nothing_is_opened_outside_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    honest_open = LinearOwner.open

    def early(owner: LinearOwner) -> None:
        honest_open(owner)
        owner.answer(owner.encode(np.zeros((1, 2))))

    monkeypatch.setattr(LinearOwner, "open", early)
    with pytest.raises(OpeningRefused, match="outside of any step"):
        played()


def test_an_opening_of_another_shape_is_refused() -> None:
    for shape in ((3, 1), (4, 2), (8, 1)):
        lie = Lie("bank", "MaskedLogits", with_field(values=functools.partial(same_key, shape=shape)))
        check_refused(played, lie, WrongContent, "shape", seconds=60)


def test_more_scores_than_the_agreed_task_has_are_refused() -> None:
    """Each score would be one number more of every row in every opening."""
    lie = Lie("bank", "TrainingExtent", with_field(scores=2))
    check_refused(played, lie, WrongContent, "scores is 2 where 1 to 1 is accepted", seconds=60)


def test_a_run_that_is_taken_up_again_opens_its_last_steps_once_more_and_says_so(
    honest: cn.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partner that makes a run break off gets the steps since the checkpoint a second time."""
    teach, calls = LinearPartner.teach_together, []

    def broken(partner: LinearPartner, batch: Any, steps: Any) -> None:
        calls.append(steps)
        if len(calls) == 2:
            raise PeerLost("gone")
        teach(partner, batch, steps)

    monkeypatch.setattr(LinearPartner, "teach_together", broken)
    with pytest.raises(PeerLost, match="gone"):
        played(tmp_path / "run")
    run = played(tmp_path / "run")
    first, second = opened(run)
    whole = opened(honest)[0][0]
    # The first attempt ends after the logits of step 2, the second begins after the checkpoint of step 1.
    assert first[0] == {"MaskedLogits": 1, "MaskedGradient": 1}
    assert second[0] == {"MaskedLogits": 1, "MaskedGradient": 1}
    assert whole == {"MaskedLogits": 1, "MaskedGradient": 2}
    assert run.ledgers["shop"].openings() == {"bank": {"MaskedLogits": 2, "MaskedGradient": 2}}
    assert np.allclose(run.parts["shop"].tensors["weights"], honest.parts["shop"].tensors["weights"])


def test_a_partner_that_breaks_off_again_and_again_gets_no_more_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says each time that it has lost its checkpoints, and would have every step opened anew."""
    monkeypatch.setattr(CheckpointStore, "examine", lambda store: ((), ()))

    def broken(partner: LinearPartner, *_: Any) -> None:
        raise PeerLost("gone")

    monkeypatch.setattr(LinearPartner, "teach_together", broken)
    for _ in range(MOST_ATTEMPTS):
        with pytest.raises((PeerLost, PeerFailed), match="gone"):
            played(tmp_path / "run")
    with pytest.raises(OpeningRefused, match="again and again"):
        played(tmp_path / "run")


def test_all_decryption_of_what_partners_send_is_counted() -> None:
    """Only the piece that counts may use what decrypts."""
    counted = SOURCE / "exchanges" / "open_masked.py"
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
