"""One loop for every role: batches agreed by seed, resume, checkpoints, early stopping told to all, progress."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import WrongContent
from colonnade.exchanges.epochs import check_finite
from colonnade.messages import GIVEN, PLAIN, Between, Carries, message
from colonnade.session import Channel, Session
from colonnade.training.kept import Kept

__all__ = ["Budget", "Patience", "Plateau", "Seen", "Step", "StopRule", "Verdict", "Waits", "steps", "wait"]

Places = npt.NDArray[np.int64]
V = TypeVar("V", torch.Tensor, npt.NDArray[Any])

_MOST_STEPS = 2**40
# Batches of a pass where settings leave their size open, and the fewest and the most rows that one has then.
_BATCHES, _SMALLEST, _LARGEST = 8, 32, 256


# The roles are the method's: it says between(Verdict, "label_holder", "feature_holder").
@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="end of epoch", carries=Carries.VERDICT)
class Verdict:
    """Whether these weights are the best so far, whether to stop, and whether to go back to the best.

    Reveals: whether the loss got better.
    """

    is_best: bool
    is_last: bool
    goes_back: bool


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="checkpoint", carries=Carries.VERDICT)
class Waits:
    """How far others are in a training, to a party that has no part in it.

    Reveals: how far the others are in a training.
    """

    step: Annotated[int, Between(0, _MOST_STEPS)]
    is_over: bool


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="checkpoint", carries=Carries.VERDICT)
class Seen:
    """That a waiting party has kept the step. Reveals: nothing but how far the sender has followed a training."""

    step: Annotated[int, Between(0, _MOST_STEPS)]


@dataclass(frozen=True)
class Budget:
    """How long to train: in epochs, of which all together have at least so many steps.

    An epoch is one pass over the rows or, on a small table, as many as bring all epochs to ``minimum_steps``. It ends
    with a verdict, so that patience counts epochs of as many steps.
    """

    epochs: int
    batch_size: int = 0
    """Rows of a step; 0 takes an eighth of all, within bounds."""
    patience: int = 0
    """Epochs without a lower loss that are borne; 0 compares none and trains all."""
    minimum_steps: int = 0
    schedule: Literal["constant", "cosine"] = "constant"
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; its end always makes one."""

    @classmethod
    def of(cls, config: Any) -> Budget:
        """Return what a method's settings say, by the names that they have in common."""
        fields = (one.name for one in dataclasses.fields(cls))
        return cls(**{name: getattr(config, name) for name in fields if hasattr(config, name)})

    def size(self, rows: int) -> int:
        """Return how many of so many rows a batch has."""
        return self.batch_size or min(max(rows // _BATCHES, _SMALLEST), _LARGEST)

    def steps_per_pass(self, rows: int) -> int:
        """Return how many batches so many rows make."""
        return max(1, math.ceil(rows / self.size(rows)))

    def passes_per_epoch(self, rows: int) -> int:
        """Return how often an epoch goes through so many rows."""
        return max(1, math.ceil(self.minimum_steps / (self.epochs * self.steps_per_pass(rows))))

    def rate(self, progress: float) -> float:
        """Return which part of the learning rate holds after a part of all steps."""
        return 0.5 + 0.5 * math.cos(math.pi * progress) if self.schedule == "cosine" else 1.0


class StopRule(Protocol):
    """Decides on weights and on going on, where losses are known. A dataclass of plain values, kept in checkpoints."""

    def judge(self, loss: float | None, is_end: bool) -> Verdict:
        """Look at a loss."""


@dataclass
class Patience:
    """Stop after so many epochs without a lower validation loss; 0 compares none."""

    epochs: int
    best: float | None = None
    since: int = 0

    def judge(self, loss: float | None, is_end: bool) -> Verdict:
        """Compare with the lowest so far."""
        is_best = self.epochs == 0 or loss is None or self.best is None or loss < self.best
        self.best = loss if is_best else self.best
        self.since = 0 if is_best else self.since + 1
        return Verdict(is_best, is_end or (self.epochs > 0 and self.since >= self.epochs), False)


@dataclass
class Plateau:
    """Stop when the loss of a step hardly moves any more, and go back when it rises again and again."""

    tolerance: float
    calm_steps: int = 3
    rises: int = 10
    best: float | None = None
    previous: float | None = None
    calm: int = 0
    rising: int = 0

    def judge(self, loss: float | None, is_end: bool) -> Verdict:
        """Look at the loss with which a step begins."""
        if loss is None:
            return Verdict(False, is_end, False)
        is_best = self.best is None or loss < self.best
        self.best = loss if is_best else self.best
        if self.previous is not None:
            is_calm = abs(self.previous - loss) <= self.tolerance * max(1.0, abs(self.previous))
            self.calm = self.calm + 1 if is_calm else 0
            self.rising = self.rising + 1 if loss > self.previous else 0
        self.previous = loss
        goes_back = self.rising >= self.rises
        return Verdict(is_best, is_end or goes_back or self.calm >= self.calm_steps, goes_back)


@dataclass
class Step:
    """One step: which rows, and what the party says about it."""

    session: Session
    number: int
    """Counted from 1 over the whole run."""
    epoch: int
    batch: int
    """The batch's place in its pass."""
    count: int
    """How many rows the batch has."""
    rate: float
    """Which part of the learning rate holds by the schedule."""
    is_followed: bool
    """Whether a checkpoint or a verdict comes right after this step, before which nothing may be left open."""
    _rows: Places | None
    _cut: Callable[[Any], Any]
    _agree: Callable[[float | None], Verdict]
    _loss: float | None = field(default=None, init=False)

    @property
    def rows(self) -> Places:
        """Return the places of the batch's rows; a party without rows has none to ask for."""
        if self._rows is None:
            raise TypeError(f"{self.session.role} '{self.session.party}' has no rows; use step.count.")
        return self._rows

    @property
    def loss(self) -> float | None:
        """Return the batch's mean loss, where the party knows one; the mean over an epoch is recorded."""
        return self._loss

    @loss.setter
    def loss(self, value: float) -> None:
        check_finite(value, self.session)
        self._loss = value

    def take(self, values: V) -> V:
        """Return the batch's rows of an array or tensor: a slice, as rows are put in order once in a pass."""
        found: V = self._cut(values)
        return found

    def agree(self, loss: float | None = None) -> bool:
        """Tell or hear in the middle of a step whether to take it. False has already gone back to the best."""
        return not self._agree(loss).goes_back


def steps(
    session: Session,
    kept: Kept,
    rows: Places | int,
    budget: Budget,
    *,
    validate: Callable[[], float | None] | None = None,
    rule: StopRule | None = None,
    tells: Sequence[Channel] = (),
    hears: Channel | None = None,
    verdicts: Literal["epoch", "step"] = "epoch",
    idle: Sequence[Channel] = (),
    setting: str = "epochs",
) -> Iterator[Step]:
    """Yield a training's steps, from its beginning or from where its checkpoint left off.

    After an epoch's last step ``validate`` is called at all parties, which exchange what they need; the party with a
    ``rule`` judges the loss that it returns there and ``tells`` the others, who ``hear``. With verdicts of every step
    they call ``step.agree``. A checkpoint comes after a verdict, never twice at a step. A training that is over yields
    nothing; either way it ends with its best weights, in evaluation. ``idle`` parties `wait`, and keep the same steps.
    ``setting`` is what counts epochs.

    The loop must not be left by break or return: what comes after a step is done when the next one is asked for.
    """
    total = rows if isinstance(rows, int) else len(rows)
    per_pass, passes = budget.steps_per_pass(total), budget.passes_per_epoch(total)
    per_epoch = per_pass * passes
    at = kept.progress
    if not at:
        at |= {"first": session.step, "epoch": 0, "is_over": False, "loss": 0.0, "rule": None}
    if rule is not None and at["rule"] is not None:
        vars(rule).update(at["rule"])
    session.expect_steps(at["first"] + per_epoch * budget.epochs)

    def agree(loss: float | None, **recorded: float) -> Verdict:
        is_end = at["epoch"] + 1 >= budget.epochs
        check_finite(loss or 0.0, session)
        if hears is None:
            verdict = (rule or Patience(0)).judge(loss, is_end)
        else:
            verdict = hears.receive(Verdict)
            is_free = verdicts == "step" or budget.patience > 0
            is_due = verdict.is_best and verdict.is_last == is_end and not verdict.goes_back
            if not (is_free or is_due) or (is_end and not verdict.is_last):
                raise WrongContent(
                    f"'{hears.peer}' wants to go on, to stop or to drop weights where the agreed settings do not allow "
                    "it."
                )
        if recorded:
            compared = {"is_best": verdict.is_best} if budget.patience and loss is not None else {}
            session.record(epoch=at["epoch"] + 1, **recorded, **compared)
        for peer in tells:
            peer.send(verdict)
        if rule is not None:
            at["rule"] = dataclasses.asdict(rule)  # type: ignore[call-overload]
        if verdict.is_best:
            kept.keep_best()
        if verdict.goes_back:
            kept.restore_best()
        at["is_over"] = verdict.is_last
        return verdict

    while not at["is_over"]:
        order: _Order | None = None
        for position in range(session.step - at["first"] - at["epoch"] * per_epoch, per_epoch):
            passed, place = divmod(position, per_pass)
            if order is None or place == 0:
                order = _Order(session, rows, budget.size(total), at["epoch"] * passes + passed)
            done = at["epoch"] * per_epoch + position
            rate = budget.rate(done / (per_epoch * budget.epochs))
            session.next_step()
            kept.begin_step(session.step, rate)
            is_last = position + 1 == per_epoch
            is_due = budget.checkpoint_every > 0 and session.step % budget.checkpoint_every == 0
            count, own, cut = order.batch(place)
            step = Step(session, session.step, at["epoch"], place, count, rate, is_last or is_due, own, cut, agree)
            yield step
            if step.loss is not None:
                at["loss"] += step.loss * count
            if is_due and not is_last:
                _keep(session, kept, idle, is_over=False)
        if verdicts == "epoch":
            kept.evaluate()
            loss = validate() if validate is not None else None
            known = {} if loss is None else {"validation_loss": loss}
            mean = at["loss"] / max(total * passes, 1)
            agree(loss, **({"training_loss": mean, **known} if rule is not None else {}))
        at["epoch"] += 1
        at["loss"] = 0.0
        if verdicts == "epoch" or at["is_over"] or session.step % (budget.checkpoint_every or 1) == 0:
            _keep(session, kept, idle, is_over=at["is_over"])
        session.end_pass(setting, at["epoch"])
    if verdicts == "epoch":
        kept.restore_best()
    kept.evaluate()
    kept.freeze()


def wait(session: Session, kept: Kept, peer: Channel) -> None:
    """Sit through a training in which this party has no part, keeping the same steps as those that do."""
    while not kept.progress.get("is_over", False):
        told = peer.receive(Waits)
        if told.step <= session.step:
            raise WrongContent(f"'{peer.peer}' goes backwards in a training that this party waits for.")
        session.step = told.step
        kept.progress["is_over"] = told.is_over
        kept.checkpoint()
        peer.send(Seen(session.step))
    kept.freeze()


def _keep(session: Session, kept: Kept, idle: Sequence[Channel], *, is_over: bool) -> None:
    """Make a checkpoint, after all who only wait have made theirs: a run goes on from a step that all have kept."""
    for peer in idle:
        peer.send(Waits(session.step, is_over))
    for peer in idle:
        if peer.receive(Seen).step != session.step:
            raise WrongContent(f"'{peer.peer}' has kept another step than the one it was told of.")
    kept.checkpoint()


class _Order:
    """One pass over the rows, in an order that all parties derive from the run's seed."""

    def __init__(self, session: Session, rows: Places | int, size: int, number: int) -> None:
        self._total, self._size = rows if isinstance(rows, int) else len(rows), size
        self._rows: Places | None = None
        if not isinstance(rows, int):
            seed = session.seed("batches", number)
            self._rows = np.random.Generator(np.random.PCG64(seed)).permutation(rows).astype(np.int64)
        self._sorted: dict[int, tuple[Any, Any]] = {}

    def batch(self, place: int) -> tuple[int, Places | None, Callable[[Any], Any]]:
        """Return how many rows a batch has, which they are where that is known, and what takes them from an array."""
        window = slice(place * self._size, (place + 1) * self._size)
        count = max(0, min(self._size, self._total - place * self._size))
        own = None if self._rows is None else self._rows[window]
        return count, own, lambda values: self._in_order(values)[window]

    def _in_order(self, values: Any) -> Any:
        """Put an array's rows in this pass's order, once, so that every batch is a slice."""
        if id(values) not in self._sorted:
            if self._rows is None:
                raise TypeError("A party without rows has no arrays to take rows from.")
            is_tensor = isinstance(values, torch.Tensor)
            found = values.index_select(0, torch.from_numpy(self._rows)) if is_tensor else values[self._rows]
            # With the array itself, so that no other can get its number meanwhile.
            self._sorted[id(values)] = (values, found)
        return self._sorted[id(values)][1]
