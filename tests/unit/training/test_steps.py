"""The loop of all methods, on a toy with all that is awkward: partners in turn while others wait, results noted between
trainings, a role without rows, verdicts within steps. Interrupted anywhere, it ends with the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from tests import tally
from torch import nn

import colonnade as cn
import colonnade.methods
from colonnade.errors import ColonnadeError, DeclarationError, TrainingFailed, WrongContent
from colonnade.messages import PLAIN, Between, Dims, between, message
from colonnade.nn import mlp
from colonnade.session import Channel, Holding, Method, Result, Role, Scores, Session, Stage
from colonnade.training import Budget, Kept, Patience, Plateau, Seen, Step, Verdict, Waits, steps, wait

L, F, C = "label_holder", "feature_holder", "collaborator"
ROLES = {L: "bank", F: ["shop", "telco"], C: "helper"}


@dataclass(frozen=True, kw_only=True)
class Toy:
    """How long every training of the toy lasts."""

    epochs: int = 2
    batch_size: int = 30
    patience: int = 2
    checkpoint_every: int = 2
    minimum_steps: int = 0


@message(sender=(L, F, C), receiver=(L, F, C), protection=PLAIN, step="any")
class Numbers:
    """Numbers. Reveals: them."""

    values: Annotated[torch.Tensor, Dims("rows", 1)]


@message(sender=L, receiver=(F, C), protection=PLAIN, step="fold")
class Enough:
    """Whether folds suffice. Reveals: that."""

    yes: bool


@message(sender=L, receiver=C, protection=PLAIN, step="set-up")
class Rows:
    """How many rows there are. Reveals: that."""

    count: Annotated[int, Between(0, 10**6)]


def network(session: Session, kept: Kept) -> tuple[nn.Module, Any]:
    net = mlp((2, 4, 1), seed=session.own_seed("net"), dropout=0.3, dtype=torch.float64)
    return net, kept.learner({"net": net}, "Adam", 0.05, {})


def learn(session: Session, step: Step, net: nn.Module, learner: Any, peers: list[Channel]) -> float:
    drawn = np.random.default_rng(session.own_seed("x", step.number)).normal(size=(step.count, 2))
    out = net(torch.from_numpy(drawn))
    heard = exchange(out.detach(), peers)
    loss = ((out - heard - 1) ** 2).mean()
    loss.backward()
    learner.step()
    return loss.item()


def exchange(values: torch.Tensor, peers: list[Channel]) -> torch.Tensor:
    for peer in peers:
        peer.send(Numbers(values))
    return sum((peer.receive(Numbers, rows=len(values)).values for peer in peers), torch.zeros_like(values))


def judged(net: nn.Module, peers: list[Channel]) -> Callable[[], float]:
    def validate() -> float:
        with torch.no_grad():
            out = net(torch.ones(4, 2, dtype=torch.float64))
        return float(((out - exchange(out, peers)) ** 2).mean())

    return validate


def train(session: Session, kept: Kept, rows: Any, config: Toy, peers: list[Channel], **more: Any) -> nn.Module:
    net, learner = network(session, kept)
    validate = judged(net, peers)
    for step in steps(session, kept, rows, Budget.of(config), validate=validate, **more):
        loss = learn(session, step, net, learner, peers)
        if session.role == L:
            step.loss = loss
    return net


def label_holder(session: Session, holding: Holding, config: Toy) -> Result:
    kept, banks, everyone = Kept(session), session.channels(F), list(session.all_channels)
    rows = holding.split.train
    session.channel(C).send(Rows(len(rows)))
    found = {}
    for bank in banks:
        idle = [one for one in everyone if one is not bank]
        net = train(session, kept.under(bank.peer), rows, config, [bank], rule=Patience(2), tells=[bank], idle=idle)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(0.5)  # what a training ended with must not be lost by this when the run is taken up
        found[bank.peer] = torch.cat([one.flatten() for one in net.parameters()]).detach()
    gains = []
    for fold in range(3):

        def one(name: str = f"fold {fold}", is_last: bool = fold == 1) -> list[Any]:
            net = train(session, kept.under(name), rows, config, everyone, rule=Patience(1), tells=everyone)
            kept.forget(name)
            for peer in everyone:
                peer.send(Enough(is_last))
            return [sum(one.sum().item() for one in net.parameters()), is_last]

        gain, is_over = kept.once(f"fold {fold}", one)
        gains.append(gain)
        if is_over:
            break
    train(session, kept, rows, config, everyone, rule=Patience(2), tells=everyone)
    table = holding.table
    classes = sorted(set(table.labels.tolist()))
    part = kept.part(config, found | {"gains": torch.tensor(gains)}, inputs=None)
    test = holding.split.test
    truth = (table.labels[holding.aligned.positions[test]] == classes[1]).astype(int)
    return Result(part, Scores("binary", test, np.full(len(test), 0.5), truth, tuple(classes)))


def other(session: Session, config: Toy, rows: Any) -> Result:
    kept, lead = Kept(session), session.channel(L)
    for bank in session.plan.roles[F]:
        if bank == session.party:
            train(session, kept.under(bank), rows, config, [lead], hears=lead)
        else:
            wait(session, kept.under(bank), lead)
    for fold in range(3):

        def one(name: str = f"fold {fold}") -> bool:
            train(session, kept.under(name), rows, config, [lead], hears=lead)
            kept.forget(name)
            return lead.receive(Enough).yes

        if kept.once(f"fold {fold}", one):
            break
    train(session, kept, rows, config, [lead], hears=lead)
    return Result(kept.part(config, inputs=None))


PLAY = {
    L: label_holder,
    F: lambda session, holding, config: other(session, config, holding.split.train),
    C: lambda session, holding, config: other(session, config, session.channel(L).receive(Rows).count),
}
METHOD = Method(
    name="awkward",
    title="t",
    citation="c",
    situation="s",
    config=Toy,
    roles=(Role(L, "l", has_label=True), Role(F, "f", at_most=None), Role(C, "n", has_rows=False)),
    lead=L,
    stages={
        "train": Stage(
            roles=PLAY,
            messages=(
                Numbers,
                Enough,
                Rows,
                between(Verdict, L, (F, C)),
                between(Waits, L, (F, C)),
                between(Seen, (F, C), L),
            ),
            makes_model=True,
        )
    },
)


@dataclass(frozen=True, kw_only=True)
class Iterations:
    """The budget of a method whose verdict comes within each step, as in FTL's algorithm 1."""

    epochs: int = 12
    batch_size: int = 10**6
    checkpoint_every: int = 3
    rate: float = 0.05


def descend(session: Session, holding: Holding, config: Iterations) -> Result:
    """Both roles: each tells the other a number, one knows the loss, and says whether the step is taken."""
    kept, (peer,) = Kept(session), session.all_channels
    knows = session.role == L
    net = mlp((1, 1), seed=session.own_seed("net"), dtype=torch.float64)
    learner = kept.learner({"net": net}, "SGD", config.rate, {})
    who: dict[str, Any] = {"rule": Plateau(1e-9, rises=2), "tells": [peer]} if knows else {"hears": peer}
    budget, taken = Budget.of(config), 0
    for step in steps(session, kept, holding.split.train, budget, verdicts="step", **who):
        out = net(torch.ones(1, 1, dtype=torch.float64))
        loss = ((out + exchange(out.detach(), [peer]) - 3.0) ** 2).mean()
        loss.backward()
        if step.agree(loss.item() if knows else None):
            learner.step()
            taken += 1
    part = kept.part(config, {"taken": torch.tensor(taken)}, inputs=None)
    return Result(part)


DESCENT = Method(
    name="descent",
    title="t",
    citation="c",
    situation="s",
    config=Iterations,
    roles=(Role(L, "l", has_label=True), Role(F, "f"), Role(C, "n", at_least=0)),
    lead=L,
    stages={
        "train": Stage(
            roles={L: descend, F: descend, C: descend},
            messages=(Numbers, between(Verdict, L, F)),
            makes_model=True,
        )
    },
)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colonnade.methods, "METHODS", (*colonnade.methods.METHODS, METHOD, DESCENT))
    # The same secrets in every run, so that two of them can be compared.
    monkeypatch.setattr(Session, "_durable_secret", lambda session: session.party.encode().ljust(32, b"."))


def play(folder: Path | None = None, **settings: Any) -> cn.Run:
    tables = tally.tables()
    shop = tally.frames()["shop"].rename(columns={"spent": "calls"})
    tables["telco"] = cn.PartyTable(shop, id="id", name="telco")
    return cn.simulate(Toy(**settings), tables, seed=5, roles=ROLES, folder=folder)


def same(first: cn.Run, second: cn.Run) -> bool:
    pairs = ((second.parts[party].tensors, part.tensors) for party, part in first.parts.items())
    return all(one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one) for one, two in pairs)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], list[int]]]:
    original = Session.next_step

    def arm(party: str, at: int) -> list[int]:
        hit: list[int] = []

        def next_step(session: Session) -> None:
            original(session)
            if session.party == party and session.step >= at and not hit:
                hit.append(session.step)
                raise ZeroDivisionError

        monkeypatch.setattr(Session, "next_step", next_step)
        return hit

    yield arm
    monkeypatch.setattr(Session, "next_step", original)


@pytest.mark.parametrize(("party", "first"), [("bank", 1), ("shop", 7), ("telco", 13), ("helper", 19)])
def test_a_run_that_is_interrupted_anywhere_ends_with_the_same_model(
    party: str, first: int, tmp_path: Path, interrupt: Callable[[str, int], list[int]]
) -> None:
    whole = play()
    interrupted = 0
    for at in range(first, 60, 18):
        hit = interrupt(party, at)
        try:
            play(tmp_path / str(at))
        except ColonnadeError:
            interrupted += 1
        if hit:
            assert same(whole, play(tmp_path / str(at))), f"interrupted at {hit}"
    assert interrupted


def descent(folder: Path | None = None, **settings: Any) -> cn.Run:
    tables = {name: table for name, table in tally.tables().items() if name != "helper"}
    return cn.simulate(Iterations(**settings), tables, seed=5, roles={L: "bank", F: "shop"}, folder=folder)


def last_sum(run: cn.Run) -> float:
    every = (item for part in run.parts.values() for item in part.tensors.items())
    return sum(float(value.sum()) for name, value in every if "net" in name)


def test_a_verdict_within_a_step_goes_back_to_the_best_at_both_parties() -> None:
    """Steps so long that the loss rises end at the best weights; short ones come near the aim."""
    assert abs(last_sum(descent(epochs=60)) - 3.0) < 0.05
    long = descent(rate=0.6)
    assert all(int(part.tensors["taken"]) < 12 for part in long.parts.values()), "it stopped when the loss rose again"
    assert abs(last_sum(long) - 3.0) <= abs(last_sum(descent(epochs=1, rate=1e-9)) - 3.0) + 1e-6


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_verdicts_within_steps_survive_an_interruption(
    party: str, tmp_path: Path, interrupt: Callable[[str, int], list[int]]
) -> None:
    whole = descent()
    hit = interrupt(party, 8)
    with pytest.raises(ColonnadeError):
        descent(tmp_path / "run")
    assert hit == [8]
    resumed = descent(tmp_path / "run")
    for name, part in whole.parts.items():
        assert torch.equal(part.tensors["net.0.weight"], resumed.parts[name].tensors["net.0.weight"])


def test_a_small_table_is_trained_for_the_floor_in_steps() -> None:
    budget = Budget(epochs=50, batch_size=256, minimum_steps=600)
    assert (budget.steps_per_pass(210), budget.passes_per_epoch(210)) == (1, 12)
    assert (budget.steps_per_pass(100_000), budget.passes_per_epoch(100_000)) == (391, 1)
    few, many = play(), play(minimum_steps=40)
    assert last_step(many) > last_step(few)
    epochs = [line["epoch"] for line in many.history["bank"]]
    assert max(epochs) <= 2, "a longer epoch counts as one, for patience and for checkpoints"


def last_step(run: cn.Run) -> int:
    return max(line["step"] for line in run.history["bank"])


@pytest.mark.parametrize("patience", [0, 2])
def test_a_verdict_that_the_settings_do_not_allow_is_refused(patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "judge", lambda self, loss, is_end: Verdict(False, False, False))
    with pytest.raises(WrongContent, match="where the agreed settings do not allow it"):
        play(patience=patience)


class _Quiet:
    party, role, step = "bank", L, 1


def a_step() -> Step:
    return Step(_Quiet(), 1, 0, 0, 7, 1.0, False, None, lambda one: one, lambda _: Verdict(True, True, False))  # type: ignore[arg-type]


def test_training_that_no_longer_gives_numbers_is_stopped() -> None:
    with pytest.raises(TrainingFailed, match="diverged"):
        a_step().loss = float("nan")


def test_a_step_of_a_party_without_rows_has_no_rows_to_ask_for() -> None:
    with pytest.raises(TypeError, match=r"has no rows; use step\.count"):
        _ = a_step().rows


def test_a_plateau_stops_when_calm_and_goes_back_when_the_loss_rises() -> None:
    calm, rises = Plateau(1e-3), Plateau(1e-9)
    assert [calm.judge(1.0, False).is_last for _ in range(4)] == [False, False, False, True]
    verdicts = [rises.judge(1.0 + one, False) for one in range(11)]
    assert [one.goes_back for one in verdicts] == [False] * 10 + [True]


def test_a_cosine_schedule_falls_from_the_first_rate_to_nothing() -> None:
    budget = Budget(epochs=1, schedule="cosine")
    assert [round(budget.rate(part), 3) for part in (0.0, 0.5, 1.0)] == [1.0, 0.5, 0.0]


def test_two_things_cannot_be_kept_under_one_name() -> None:
    class Leaf:
        def state(self) -> Any:
            return {}, {}

        def load_state(self, tensors: Any, document: Any) -> None: ...

    class Quiet(_Quiet):
        resumed = None

    kept = Kept(Quiet(), secret_start=True)  # type: ignore[arg-type]
    kept.leaf("one", Leaf())
    with pytest.raises(DeclarationError, match="Two things are kept under the name one"):
        kept.leaf("one", Leaf())
