"""The order in which banks learn with the feature holder, and how far a run has come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import batches
from colonnade.errors import ConfigError
from colonnade.methods.prada.config import PrADA
from colonnade.session import RunPlan, Session

__all__ = ["Course", "Lesson", "Phase", "batches_of", "lessons_for", "phase_of"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Phase:
    """Settings of one phase: pre-training, fine-tuning, or a model without any source."""

    name: str
    epochs: int
    batch_size: int
    head_rate: float
    l2: float
    patience: int
    start: float
    trains_inputs: bool
    """Whether the feature holder's networks learn too, and so get gradients."""

    def progress(self, epoch: int, batch: int, steps: int) -> float:
        """Return which part of the phase lies behind."""
        return (epoch + batch / max(steps, 1)) / self.epochs


def phase_of(config: PrADA, name: str) -> Phase:
    """Return a phase by name."""
    if name == "pretrain":
        return Phase(
            name, config.epochs, config.batch_size, config.head_rate, config.l2, config.patience, config.start, True
        )
    if name == "vfl":
        # The same budget of steps and rates as fine-tuning, but everything learns from the target's rows.
        return Phase(
            name,
            config.fine_epochs,
            config.fine_batch_size,
            config.head_rate,
            config.fine_l2,
            config.fine_patience,
            config.start,
            True,
        )
    return Phase(
        name,
        config.fine_epochs,
        config.fine_batch_size,
        config.fine_rate,
        config.fine_l2,
        config.fine_patience,
        config.start if config.fine_start is None else config.fine_start,
        config.tune != "nothing",
    )


@dataclass(frozen=True)
class Lesson:
    """One epoch of one bank with the feature holder."""

    phase: str
    party: str
    epoch: int


def lessons_for(plan: RunPlan, config: PrADA, stage: str) -> list[Lesson]:
    """Return all lessons of a stage in order: sources in turn, epoch by epoch; then one target after the other."""
    sources, targets = plan.roles.get("source", ()), plan.roles["target"]
    found = []
    if stage in ("train", "pretrain"):
        found += [Lesson("pretrain", party, epoch) for epoch in range(config.epochs) for party in sources]
    if stage in ("train", "finetune"):
        phases = ("finetune", "vfl") if config.compare == "vfl" else ("finetune",)
        found += [
            Lesson(phase, party, epoch) for party in targets for phase in phases for epoch in range(config.fine_epochs)
        ]
    if stage == "pretrain" and not sources:
        raise ConfigError("The stage pretrain needs a source to learn from. Name one in roles.")
    if stage == "train" and not sources and config.tune != "all":
        raise ConfigError(
            "Without a source nothing is pre-trained, so that the groups must learn from the target: set tune = 'all', "
            "or name a source in roles."
        )
    if len(sources) > 1 and config.patience:
        raise ConfigError("config.patience is for one source: several would have to agree when to stop. Set it to 0.")
    return found


@dataclass
class Course:
    """Where a run stands: the lesson, how many of its batches are done, and which phases have ended early."""

    session: Session
    lessons: Sequence[Lesson]
    place: int = 0
    batch: int = 0
    ended: set[tuple[str, str]] = field(default_factory=set)

    def left(self) -> Iterator[Lesson]:
        """Iterate over the lessons that are still to come."""
        while self.place < len(self.lessons):
            lesson = self.lessons[self.place]
            if (lesson.phase, lesson.party) not in self.ended:
                yield lesson
            else:
                self.place += 1

    @property
    def begins(self) -> bool:
        """Tell whether the lesson at hand is the first of its phase, and nothing of it is done yet."""
        return self.lessons[self.place].epoch == 0 and self.batch == 0

    def finish(self, lesson: Lesson, stops: bool) -> None:
        """Go on to the next lesson; ``stops`` where this phase ends for its bank."""
        self.place, self.batch = self.place + 1, 0
        if stops:
            self.ended.add((lesson.phase, lesson.party))
        self.session.end_pass("epochs" if lesson.phase == "pretrain" else "fine_epochs", lesson.epoch + 1)

    def is_due(self, every: int, steps: int) -> bool:
        """Tell whether a checkpoint is due within a lesson of so many steps."""
        return bool(every) and self.batch < steps and self.session.step % every == 0

    def state(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {"place": self.place, "batch": self.batch, "ended": sorted(map(list, self.ended))}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.place, self.batch = state["place"], state["batch"]
        self.ended = {(phase, party) for phase, party in state["ended"]}


def batches_of(session: Session, phase: Phase, party: str, rows: Places, epoch: int) -> list[tuple[int, Places]]:
    """Return an epoch's batches of a bank's training rows, by number, in the order both sides derive from the seed.

    Where inputs are trained every epoch has batches of its own. Where they are not, batches are cut once, as they are
    encrypted once, and only their order changes.
    """
    purpose = f"batches/{phase.name}/{party}"
    if phase.trains_inputs:
        cut = list(batches(rows, phase.batch_size, session.seed(purpose, epoch)))
        if len(cut) > 1 and 2 * len(cut[-1]) < phase.batch_size:
            # A batch of a few rows hides none of them, and has no statistics to normalise by.
            cut[-2:] = [np.concatenate(cut[-2:])]
        return list(enumerate(cut))
    cut = list(batches(rows, phase.batch_size, session.seed(purpose)))
    order = np.random.default_rng(session.seed(f"order/{purpose}", epoch)).permutation(len(cut))
    return [(int(number), cut[number]) for number in order]
