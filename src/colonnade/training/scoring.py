"""Score rows in bounded parts, by the model that serves: held-out rows after training, new rows later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import UsageError
from colonnade.exchanges.holdings import scores_in_terms_of
from colonnade.messages import GIVEN, PLAIN, Carries, Hex, message
from colonnade.metrics import USUAL, Threshold, choose_threshold
from colonnade.nn import tensors_under
from colonnade.session import Channel, Finding, Holding, ModelPart, Result, Scores, Session
from colonnade.training.alone import Alone
from colonnade.training.choice import Choice, choose
from colonnade.training.kept import Kept, as_tensors

__all__ = ["ModelToScore", "Served", "Serving", "TrainedModel", "agree_on_model", "asked_model", "in_parts", "parts_of"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Rows per message, so that scoring many rows needs little memory at either side.
_PART = 8192
# Fewer rows say too little about how sure a model may be.
_LEAST_TO_CALIBRATE = 100
_ID_BYTES = 16


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="end of training", carries=Carries.VERDICT)
class TrainedModel:
    """The id of the model that the training made, and whether scores need the receiver's columns.

    Reveals: the id of the trained model, and whether scores need the receiver's columns, so whether the label holder's
    own columns alone are clearly better.
    """

    model: Annotated[str, Hex(_ID_BYTES)]
    is_needed: bool


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="scoring", carries=Carries.VERDICT)
class ModelToScore:
    """The id of the model that rows are scored with.

    Reveals: the id of the model that rows are scored with, so that parts of different models do not mix.
    """

    model: Annotated[str, Hex(_ID_BYTES)]


def parts_of(rows: Places) -> Iterator[Places]:
    """Cut rows that are only scored into parts of bearable size."""
    return (rows[start : start + _PART] for start in range(0, len(rows), _PART))


def in_parts(rows: Places, score: Callable[[Places], torch.Tensor]) -> torch.Tensor:
    """Return what a function gives for rows, which it gets part by part."""
    with torch.no_grad():
        found = [score(part) for part in parts_of(rows)]
    return torch.cat(found) if found else torch.empty(0, 1, 1)


@dataclass(frozen=True)
class Served:
    """What a label holder has at the end of a training."""

    serving: Serving
    name: str
    """Which of the candidates serves."""
    candidates: Mapping[str, Scores]
    """Scores of the test rows, by every model that could have served."""
    finding: Finding

    def result(
        self, kept: Kept, config: Any, weights: Mapping[str, torch.Tensor | Numbers], *findings: Finding, **about: Any
    ) -> Result:
        """Return what a role function hands back, with this party's part of the model: ``weights`` and what is said."""
        tensors, document = self.serving.kept()
        part = kept.part(config, {**weights, **tensors}, **document, **about)
        scores = self.candidates[self.name]
        return Result(part, scores, (self.finding, *findings), candidates=self.candidates, served=self.name)


@dataclass(frozen=True)
class Serving:
    """Which model serves at the label holder, and how its scores are given: calibrated, in the label's own terms."""

    model: str
    """An id, the same at all parties."""
    labels: LabelEncoder
    choice: Choice
    alone: Alone | None
    temperature: float
    threshold: Threshold = USUAL
    """From which probability on a row of two classes is called positive."""

    @classmethod
    def settle(
        cls,
        session: Session,
        holding: Holding,
        labels: LabelEncoder,
        values: npt.NDArray[Any],
        together: Numbers,
        own: Numbers | None,
        peers: Sequence[Channel],
        weights: Mapping[str, torch.Tensor | Numbers],
    ) -> Served:
        """Choose the model that serves, and tell the partners.

        ``values`` are the labels of all shared rows, ``together`` the federated model's scores of the validation rows
        and then of the test rows, ``own`` this party's inputs, if it has any, from which a model without partners is
        learned, and ``weights`` what it keeps of the federated model.
        """
        split, task = holding.split, labels.task
        targets = labels.encode(values)
        alone = None
        if own is not None and own.shape[1] and peers:
            alone = Alone.fit(task, own[split.train], targets[split.train], len(labels.classes), session.seed("alone"))
        held_out = np.concatenate([split.validation, split.test])
        every = {"together": together} | (
            {} if alone is None or own is None else {"alone": alone.scores(own[held_out])}
        )
        count = len(split.validation)
        choice = choose(task, targets[split.validation], {name: one[:count] for name, one in every.items()})
        served = choice.served(every)
        temperature = _temperature(task, served[:count], targets[split.validation])
        share = float(np.mean(targets[split.train])) if task == "binary" else 0.0

        def threshold_of(scores: Numbers) -> Threshold:
            if task != "binary":
                return USUAL
            return choose_threshold(_tempered(task, scores[:count], temperature), share)

        serving = cls(_id_of(weights), labels, choice, alone, temperature, threshold_of(served))
        for peer in peers:
            peer.send(TrainedModel(serving.model, serving.needs_partners))
        if choice.name not in every:
            every = every | {"average": served}
        truth = values[split.test]
        judged = {
            name: replace(
                scores_in_terms_of(labels, _tempered(task, one[count:], temperature), split.test, truth),
                threshold=threshold_of(one),
            )
            for name, one in every.items()
        }
        finding = Finding(name="choice", title="which model serves", text=choice.sentence, values=choice.to_json())
        return Served(serving, choice.name if choice.name in judged else "average", judged, finding)

    @property
    def needs_partners(self) -> bool:
        """Tell whether scores need the partners' columns."""
        return self.choice.weights.get("together", 0.0) > 0.0

    def scores(self, together: Numbers | None, own: Numbers | None, rows: Places) -> Scores:
        """Return scores of new rows: ``together`` by the federated model, ``own`` the label holder's inputs."""
        every = {} if together is None else {"together": together}
        if self.alone is not None and own is not None:
            every["alone"] = self.alone.scores(own)
        values = _tempered(self.labels.task, self.choice.served(every), self.temperature)
        return replace(scores_in_terms_of(self.labels, values, rows), threshold=self.threshold)

    def kept(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what a part of the model holds of it."""
        tensors = {} if self.alone is None else {f"alone.{key}": one for key, one in self.alone.tensors().items()}
        document = {
            "model": self.model,
            "label_encoder": self.labels.to_json(),
            "choice": self.choice.to_json(),
            "alone": None if self.alone is None else self.alone.document,
            "temperature": self.temperature,
            "threshold": asdict(self.threshold),
        }
        return tensors, document

    @classmethod
    def from_part(cls, part: ModelPart) -> Serving:
        """Return what `kept` gave."""
        document, alone = part.document, None
        if document["alone"] is not None:
            alone = Alone.from_part(tensors_under("alone.", part.tensors), document["alone"])
        labels, choice = LabelEncoder.from_json(document["label_encoder"]), Choice.from_json(document["choice"])
        threshold = Threshold(**document["threshold"])
        return cls(document["model"], labels, choice, alone, document["temperature"], threshold)


def agree_on_model(peers: Sequence[Channel], part: ModelPart) -> Serving:
    """Tell the partners which model scores rows, and return what serves of it."""
    serving = Serving.from_part(part)
    for peer in peers:
        peer.send(ModelToScore(serving.model))
    return serving


def asked_model(session: Session, peer: Channel, part: ModelPart) -> bool:
    """Hear which model scores rows, refuse another than this party's part is of, and tell whether it is needed."""
    if peer.receive(ModelToScore).model != part.document["model"]:
        raise UsageError(
            f"'{peer.peer}' scores with another model than the one that the part of '{session.party}' belongs to. Use "
            "run folders of the same training at all parties."
        )
    return bool(part.document["is_needed"])


def _id_of(weights: Mapping[str, torch.Tensor | Numbers]) -> str:
    """Return an id that follows from a party's weights, which no other party knows."""
    digest = hashlib.sha256(b"colonnade model")
    for name, one in sorted(as_tensors(weights).items()):
        digest.update(name.encode() + one.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[: 2 * _ID_BYTES]


def _tempered(task: str, scores: Numbers, temperature: float) -> Numbers:
    """Make probabilities more or less sure, without changing their order."""
    if task == "regression" or temperature == 1.0 or not len(scores):
        return scores
    known = np.stack([1.0 - scores, scores], axis=1) if task == "binary" else scores
    logs = np.log(np.clip(known, 1e-12, 1.0)) / temperature
    raised = np.exp(logs - logs.max(axis=1, keepdims=True))
    found = raised / raised.sum(axis=1, keepdims=True)
    return np.asarray(found[:, 1] if task == "binary" else found)


def _temperature(task: str, scores: Numbers, truth: Numbers) -> float:
    """Return the temperature with the lowest log loss on the validation rows, if these clearly ask for one."""
    if task == "regression" or len(truth) < _LEAST_TO_CALIBRATE:
        return 1.0

    def losses(temperature: float) -> Numbers:
        tempered = _tempered(task, scores, temperature)
        known = np.stack([1.0 - tempered, tempered], axis=1) if task == "binary" else tempered
        return -np.log(np.clip(known[np.arange(len(truth)), truth.astype(np.int64)], 1e-12, 1.0))

    tried = np.geomspace(0.25, 4.0, 41)
    best = float(min(tried, key=lambda one: losses(float(one)).mean()))
    gain = losses(1.0) - losses(best)
    return best if gain.mean() > 2.0 * gain.std() / np.sqrt(len(gain)) else 1.0
