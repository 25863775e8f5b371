"""What a party keeps: a register by name, of which checkpoints and parts of models are made."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.errors import CheckpointBroken, DeclarationError
from colonnade.exchanges.holdings import first_seeds
from colonnade.nn import Learner, SeededDropout, find_dropouts, reseed_dropout, tensors_under
from colonnade.session import ModelPart, Session

__all__ = ["Kept", "Leaf", "as_tensors"]

Numbers = npt.NDArray[np.float64]
State = tuple[dict[str, torch.Tensor], dict[str, Any]]
L = TypeVar("L", bound="Leaf")
P = TypeVar("P", bound="PlainState")
V = TypeVar("V")


class Leaf(Protocol):
    """A kind of thing that can be kept: it gives its state as tensors and a JSON document, and takes it up again."""

    def state(self) -> State:
        """Return everything a checkpoint needs."""

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""


class _Arrays(dict[str, Numbers]):
    """Arrays by name."""

    def state(self) -> State:
        """Return all of them."""
        return as_tensors(self), {}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up those that were kept."""
        self.clear()
        self.update({name: one.numpy() for name, one in tensors.items()})


class PlainState(Protocol):
    """A thing whose state is one mapping: of tensors, or of JSON values."""

    def state(self) -> dict[str, Any]:
        """Return everything a checkpoint needs."""

    def load_state(self, state: Mapping[str, Any], /) -> None:
        """Take up what `state` returned."""


class _PlainLeaf:
    def __init__(self, thing: PlainState) -> None:
        self._thing = thing

    def state(self) -> State:
        found = self._thing.state()
        is_tensors = all(isinstance(one, torch.Tensor) for one in found.values())
        return (found, {}) if is_tensors else ({}, found)

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        self._thing.load_state(tensors or document)


class Kept:
    """The register of one training. What is registered is filled at once, where a checkpoint holds it.

    So whatever is done to it before a training begins must be done before it is registered.
    """

    def __init__(self, session: Session, *, secret_start: bool = True, _root: Kept | None = None) -> None:
        """Take up the checkpoint to go on from; with ``secret_start`` no other party can derive the seeds."""
        self._session, self._root = session, _root or self
        self.seed: Callable[..., int] = first_seeds(session, secret_start)
        """Gives a seed by purpose and counter, such as for first weights."""
        self._secret_start = secret_start
        self.learners: dict[str, Learner] = {}
        self._leaves: dict[str, Leaf] = {}
        self._compared: dict[str, State | None] = {}
        """The best states so far of leaves that have one."""
        self._under: dict[str, Kept] = {}
        self._dropouts: list[SeededDropout] = []
        self._notes: dict[str, Any] = {}
        self._frozen: State | None = None
        self._resumed: State | None = None
        self.progress: dict[str, Any] = {}
        """Where this training stands; `steps` writes it."""
        if _root is None and session.resumed is not None:
            self._take_up(session.resumed.tensors, session.resumed.document)

    def learner(
        self, modules: Mapping[str, nn.Module], optimizer: str, rate: float, options: Mapping[str, Any]
    ) -> Learner:
        """Keep modules that one optimizer trains: as they are, at their best, and the optimizer's own numbers."""
        learner = Learner(modules, optimizer, rate, options)
        self._dropouts += find_dropouts(learner.modules.values())
        name = "+".join(modules)
        self.learners[name] = learner
        return self.leaf(name, learner)

    def leaf(self, name: str, leaf: L, *, has_best: bool = False) -> L:
        """Keep anything else that can say its state; ``has_best`` where early stopping goes back to its best."""
        if name in self._leaves:
            raise DeclarationError(f"Two things are kept under the name {name}.")
        self._leaves[name] = leaf
        if has_best:
            self._compared[name] = None
        # A checkpoint of an earlier training of the run holds nothing of this one.
        if self._resumed is not None and self._resumed[1]["leaves"]:
            tensors, document = self._resumed
            if name not in document["leaves"]:
                raise CheckpointBroken(f"The checkpoint does not hold '{name}'. Another version wrote it; begin anew.")
            leaf.load_state(tensors_under(f"{name}/", tensors), document["leaves"][name])
            best = document["best"].get(name)
            if best is not None:
                self._compared[name] = (tensors_under(f"best:{name}/", tensors), best)
        return leaf

    def plain(self, name: str, thing: P) -> P:
        """Keep a thing whose state is tensors only, or plain values only."""
        self.leaf(name, _PlainLeaf(thing))
        return thing

    def arrays(self, name: str, **given: Numbers) -> dict[str, Numbers]:
        """Keep arrays, and return them: a method writes into those that it works out as it goes."""
        return self.leaf(name, _Arrays(given))

    def under(self, name: str) -> Kept:
        """Return the register of one of several trainings, such as a phase, a fold, a candidate, a partner."""
        if name not in self._under:
            child = self._under[name] = Kept(self._session, secret_start=self._secret_start, _root=self._root)
            if self._resumed is not None and name in self._resumed[1]["under"]:
                tensors, document = self._resumed
                child._take_up(tensors_under(f"{name}:", tensors), document["under"][name])
        return self._under[name]

    def forget(self, name: str) -> None:
        """Leave a training out of later checkpoints: what mattered of it was noted. All parties do so together."""
        self._under.pop(name, None)

    def once(self, name: str, compute: Callable[[], V]) -> V:
        """Return a plain result that is computed once in a run; a resumed run takes it from the checkpoint.

        Messages inside ``compute`` cross again only where all parties compute again: they go on from one step.
        """
        if name not in self._notes:
            self._notes[name] = compute()
        found: V = self._notes[name]
        return found

    def keep_best(self) -> None:
        """Remember what learns as it is now."""
        for learner in self.learners.values():
            learner.keep_best()
        for name in self._compared:
            self._compared[name] = _copied(self._leaves[name].state())

    def restore_best(self) -> None:
        """Go back to the best, where any was kept."""
        for learner in self.learners.values():
            learner.restore_best()
        for name, best in self._compared.items():
            if best is not None:
                self._leaves[name].load_state(*_copied(best))

    def begin_step(self, step: int, rate: float) -> None:
        """Forget gradients, set the learning rate as a part of the first, and let this step's dropout repeat."""
        for learner in self.learners.values():
            learner.train(True)
            learner.zero_gradients()
            learner.scale_rate(rate)
        if self._dropouts:
            reseed_dropout(self._dropouts, self.seed("dropout", step))

    def evaluate(self) -> None:
        """Switch all modules to evaluation."""
        for learner in self.learners.values():
            learner.train(False)

    def freeze(self) -> None:
        """Keep what a finished training ended with, whatever is done with it afterwards."""
        self._frozen = _copied(self._state())

    def checkpoint(self) -> None:
        """Write the whole register. All parties do so at the same steps."""
        self._session.checkpoint(ModelPart(*self._root._state()))

    def part(
        self,
        config: Any,
        tensors: Mapping[str, torch.Tensor | Numbers] | None = None,
        **document: Any,
    ) -> ModelPart:
        """Return this party's part of the trained model: weights without optimizers, and what else is given."""
        weights = {key: value for learner in self.learners.values() for key, value in learner.weights().items()}
        about = {"method": self._session.method.name, "role": self._session.role, "party": self._session.party}
        return ModelPart(
            weights | as_tensors(tensors or {}), {**about, "config": dataclasses.asdict(config), **document}
        )

    def _state(self) -> State:
        if self._frozen is not None:
            return self._frozen
        tensors: dict[str, torch.Tensor] = {}
        leaves, best, under = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for name, leaf in self._leaves.items():
            found, leaves[name] = leaf.state()
            tensors |= {f"{name}/{key}": value for key, value in found.items()}
        for name, state in self._compared.items():
            if state is not None:
                best[name] = state[1]
                tensors |= {f"best:{name}/{key}": value for key, value in state[0].items()}
        for name, child in self._under.items():
            found, under[name] = child._state()
            tensors |= {f"{name}:{key}": value for key, value in found.items()}
        about = {"progress": self.progress, "notes": self._notes}
        return tensors, {**about, "leaves": leaves, "best": best, "under": under}

    def _take_up(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        self._resumed, self.progress, self._notes = (tensors, document), document["progress"], document["notes"]


def as_tensors(arrays: Mapping[str, torch.Tensor | Numbers]) -> dict[str, torch.Tensor]:
    """Return arrays as tensors, and tensors as they are."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(one)) if isinstance(one, np.ndarray) else one
        for name, one in arrays.items()
    }


def _copied(state: State) -> State:
    return {key: value.detach().clone() for key, value in state[0].items()}, copy.deepcopy(state[1])
