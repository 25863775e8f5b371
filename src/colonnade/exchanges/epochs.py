"""Train by epochs until the label holder says stop, with checkpoints at the same steps everywhere."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Protocol

from colonnade.errors import TrainingFailed, WrongContent
from colonnade.messages import PLAIN, Carries, message
from colonnade.session import ModelPart, Session

if TYPE_CHECKING:
    import torch

__all__ = ["EpochSettings", "EpochVerdict", "Epochs", "Trainee", "check_finite"]


@message(
    sender="label_holder",
    receiver="feature_holder",
    protection=PLAIN,
    step="end of epoch",
    carries=Carries.VERDICT,
)
class EpochVerdict:
    """Whether to keep the weights of this epoch and whether to stop. Reveals: whether validation got better."""

    is_best: bool
    is_last: bool

    def check(self, *, is_end: bool, compares: bool, sender: str) -> None:
        """Refuse a verdict that the agreed settings do not allow: ``compares`` where they let epochs be compared."""
        is_free = compares or (self.is_best and self.is_last == is_end)
        if not is_free or (is_end and not self.is_last):
            raise WrongContent(
                f"{sender} wants to go on, to stop or to drop weights after an epoch where the agreed settings do not "
                "allow it."
            )


class Trainee(Protocol):
    """What learns: it can be saved, and remembers its best state."""

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Go on from a checkpoint."""

    def keep_best(self) -> None:
        """Remember the weights as they are now."""


class EpochSettings(Protocol):
    """What a method's settings say about epochs."""

    @property
    def batch_size(self) -> int:
        """Return the rows of a step."""

    @property
    def epochs(self) -> int:
        """Return the most passes over the training rows."""

    @property
    def patience(self) -> int:
        """Return how many epochs without a better validation loss are borne; 0 for all."""

    @property
    def checkpoint_every(self) -> int:
        """Return the steps between checkpoints within an epoch; 0 for none."""


@dataclasses.dataclass
class Epochs:
    """Where training stands. Every party keeps the same, so that all checkpoint and stop at the same steps."""

    steps_per_epoch: int
    epochs: int
    patience: int
    checkpoint_every: int
    first_step: int = 0
    """The steps that lie before these epochs, where a method trains several models one after the other."""
    epoch: int = 0
    is_over: bool = False
    best_loss: float | None = None
    epochs_since_best: int = 0
    loss_so_far: float = 0.0
    """The sum of this epoch's losses; only the label holder knows losses."""

    @classmethod
    def begin(cls, session: Session, trainee: Trainee, rows: int, config: EpochSettings) -> Epochs:
        """Start at the beginning, or where the checkpoint left off."""
        steps_per_epoch = math.ceil(rows / config.batch_size)
        session.expect_steps(steps_per_epoch * config.epochs)
        return cls.begin_phase(session, trainee, steps_per_epoch, config, session.resumed)

    @classmethod
    def begin_phase(
        cls, session: Session, trainee: Trainee, steps_per_epoch: int, config: EpochSettings, resumed: ModelPart | None
    ) -> Epochs:
        """Start one of several trainings here, or where its checkpoint left off."""
        fixed = (steps_per_epoch, config.epochs, config.patience, config.checkpoint_every)
        if resumed is None:
            return cls(*fixed, first_step=session.step)
        trainee.load_state(resumed.tensors, resumed.document)
        return cls(*fixed, **resumed.document["progress"])

    def steps_done(self, session: Session) -> int:
        """Return how many steps of this epoch lie behind us, after a resume in its middle."""
        return session.step - self.first_step - self.epoch * self.steps_per_epoch

    def judge(
        self, session: Session, training_loss: float, validation_loss: float | None, **further: float | str
    ) -> EpochVerdict:
        """Decide on this epoch's weights and on going on; only the label holder can. ``further`` is recorded too."""
        check_finite(validation_loss or 0.0, session)
        values: dict[str, float | str] = {**further, "epoch": self.epoch + 1, "training_loss": training_loss}
        is_best = True
        if validation_loss is not None:
            values["validation_loss"] = validation_loss
            is_best = self.patience == 0 or self.best_loss is None or validation_loss < self.best_loss
            self.best_loss = validation_loss if is_best else self.best_loss
            values |= {"is_best": is_best} if self.patience else {}
        self.epochs_since_best = 0 if is_best else self.epochs_since_best + 1
        stops_early = self.patience > 0 and self.epochs_since_best >= self.patience
        session.record(**values)
        return EpochVerdict(is_best, stops_early or self.epoch + 1 >= self.epochs)

    def end_epoch(self, session: Session, trainee: Trainee, verdict: EpochVerdict) -> None:
        """Follow the verdict, if it is one that the settings allow, and make the epoch's checkpoint."""
        verdict.check(is_end=self.epoch + 1 >= self.epochs, compares=self.patience > 0, sender="The label holder")
        if verdict.is_best:
            trainee.keep_best()
        self.epoch += 1
        self.loss_so_far = 0.0
        self.is_over = verdict.is_last
        self._keep(session, trainee)
        session.end_pass("epochs", self.epoch)

    def keep_between_epochs(self, session: Session, trainee: Trainee) -> None:
        """Make a checkpoint where the settings ask for one within an epoch."""
        at_epoch_end = (session.step - self.first_step) % self.steps_per_epoch == 0
        if self.checkpoint_every and session.step % self.checkpoint_every == 0 and not at_epoch_end:
            self._keep(session, trainee)

    def _keep(self, session: Session, trainee: Trainee) -> None:
        tensors, document = trainee.state()
        progress = dataclasses.asdict(self)
        for fixed in ("steps_per_epoch", "epochs", "patience", "checkpoint_every"):
            del progress[fixed]
        session.checkpoint(ModelPart(tensors, document | {"progress": progress}))


def check_finite(value: float, session: Session) -> None:
    """Stop training that no longer gives numbers."""
    if not math.isfinite(value):
        raise TrainingFailed(
            f"Training diverged: '{session.party}' no longer gets numbers at step {session.step}. "
            "Lower learning_rate and run again."
        )
