"""Several trainings one after the other, of which a checkpoint holds the finished ones too."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from colonnade.exchanges.epochs import Epochs, EpochSettings, Trainee
from colonnade.nn import tensors_under
from colonnade.session import Session

__all__ = ["Course", "Side"]

State = tuple[dict[str, torch.Tensor], dict[str, Any]]


class Side(Trainee, Protocol):
    """One party with one model under training."""

    def open(self) -> None:
        """Begin, where the training was not taken up from a checkpoint."""


class Course:
    """The trainings of a run in their order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._done: dict[str, State] = {}
        self._resumed = session.resumed
        self._current: str | None = None
        if self._resumed is not None:
            self._current = self._resumed.document["phase"]
            for name, document in self._resumed.document["done"].items():
                self._done[name] = (tensors_under(f"done/{name}/", self._resumed.tensors), document)

    def is_done(self, name: str) -> bool:
        """Tell whether a training was over before the run was taken up again."""
        return name in self._done

    def begin(self, name: str, side: Side, steps: int, config: EpochSettings) -> tuple[Trainee, Epochs]:
        """Start a training, or take it up where its checkpoint left off."""
        resumed = self._resumed if name == self._current else None
        self._current = name
        kept = _Kept(self, side)
        if resumed is None:
            side.open()
        else:
            self._resumed = None
        return kept, Epochs.begin_phase(self._session, kept, steps, config, resumed)

    def restore(self, name: str, side: Side) -> None:
        """Give a side the state in which its training ended."""
        side.load_state(*self._done[name])

    def end(self, name: str, side: Side) -> None:
        """Note that a training is over, and with which state."""
        self._done[name] = side.state()

    def note(self, name: str, document: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> None:
        """Note a result that later checkpoints must know, other than that of a training."""
        self._done[name] = (tensors or {}, document)

    def noted(self, name: str) -> State:
        """Return what was noted under a name."""
        return self._done[name]

    def forget(self, name: str) -> None:
        """Leave a training out of later checkpoints: what mattered of it was noted."""
        self._done.pop(name, None)

    def around(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> State:
        """Add the finished trainings to the state of the present one."""
        for name, (done, _) in self._done.items():
            tensors = tensors | {f"done/{name}/{key}": value for key, value in done.items()}
        finished = {name: own for name, (_, own) in self._done.items()}
        return tensors, document | {"phase": self._current, "done": finished}


class _Kept:
    """A side whose checkpoints hold the finished trainings too."""

    def __init__(self, course: Course, side: Side) -> None:
        self._course, self._side = course, side

    def state(self) -> State:
        return self._course.around(*self._side.state())

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        own = {name: value for name, value in tensors.items() if not name.startswith("done/")}
        self._side.load_state(own, document)

    def keep_best(self) -> None:
        self._side.keep_best()
