"""What the label holder wants of codes: classes, numbers, or which of several candidates is chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from colonnade.data import LabelEncoder, PartyTable
from colonnade.errors import TableError
from colonnade.exchanges.holdings import encoded_labels
from colonnade.methods.fairvfl.config import FairVFL
from colonnade.methods.fairvfl.inputs import TextCoder, split_texts
from colonnade.methods.fairvfl.networks import build_reader, build_task, dtype_of
from colonnade.methods.fairvfl.sides import Seeds
from colonnade.nn import Learner, find_dropouts, reseed_dropout, seeded_linear, supervised_loss
from colonnade.nn.draws import seeded_generator
from colonnade.session import Holding, Session

__all__ = [
    "CandidateReader",
    "Ranking",
    "Supervised",
    "check_places",
    "clicks_of",
    "label_encoder_of",
    "make_task",
    "ranked",
]

Places = npt.NDArray[np.int64]


class Supervised:
    """A label for every row: two classes, several, or a number."""

    def __init__(self, session: Session, holding: Holding, config: FairVFL, seeds: Seeds) -> None:
        self.labels, self.encoder = encoded_labels(session, holding, config.task)
        self.kind = self.encoder.task
        encoded = torch.from_numpy(self.encoder.encode(self.labels))
        self.targets = encoded.long() if self.kind == "multiclass" else encoded.to(dtype_of(config))
        self.outputs = len(self.encoder.classes) if self.kind == "multiclass" else 1
        classes = max(len(self.encoder.classes), 2)
        self.constant_loss = math.inf if self.kind == "regression" else math.log(classes)
        self.network = None if config.task_cut == "server" else build_task(config, self.outputs, seeds("task"))
        self._learners = supervised_learners(self.network, config)
        self._dropouts = find_dropouts([self.network] if self.network is not None else [])
        self._seeds = seeds

    def learners(self) -> Sequence[Learner]:
        """Return what learns here."""
        return self._learners

    def reseed(self, step: int) -> None:
        """Set dropout for a step."""
        reseed_dropout(self._dropouts, self._seeds("dropout/task", step))

    def loss(self, code: torch.Tensor, batch: Places) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return supervised_loss(self.kind, self.score(code, batch), self.targets[torch.from_numpy(batch)])

    def score(self, code: torch.Tensor, rows: Places) -> torch.Tensor:
        """Return the scores of rows."""
        scores: torch.Tensor = code if self.network is None else self.network(code)
        return scores

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the task's model reads."""
        return ()

    def document(self) -> dict[str, Any]:
        """Return what is kept with the weights."""
        return {"label_encoder": self.encoder.to_json(), "outputs": self.outputs}


def supervised_learners(network: nn.Module | None, config: FairVFL) -> list[Learner]:
    """Return the learner of the task's model, where it is here."""
    if network is None:
        return []
    return [Learner({"task": network}, config.optimizer, config.learning_rate, config.optimizer_options)]


class CandidateReader(nn.Module):
    """Give every candidate a vector to compare codes with."""

    def __init__(self, config: FairVFL, name: str, coder: TextCoder, seed: int) -> None:
        super().__init__()
        self.reader = build_reader(config, name, coder, seed)
        generator = seeded_generator(seed + 1)
        self.narrow = seeded_linear(config.width, config.unified_width, generator, dtype_of(config))

    def forward(self, texts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the vectors of candidates, by row and candidate."""
        needed, back = torch.unique(places, return_inverse=True)
        vectors: torch.Tensor = self.narrow(self.reader.encode_text(texts[needed]))
        return vectors[back]


class Ranking:
    """Candidates for every row, of which one or more were chosen: codes are compared with candidates' texts."""

    kind = "ranking"
    constant_loss = math.inf

    def __init__(self, session: Session, holding: Holding, config: FairVFL, seeds: Seeds) -> None:
        positions = holding.aligned.positions
        labels = holding.table.labels
        if labels is None:
            raise TableError(f"'{session.party}' has no label column of clicks, such as '0 1 0'. Set label = ….")
        self.labels = labels[positions]
        train = positions[holding.split.train]
        self.clicks = clicks_of(self.labels)
        self.outputs = self.clicks.shape[1]
        self.coder = TextCoder.fit(holding.table, config.candidates, train, longest=config.words, items=self.outputs)
        self._inputs = self.coder.transform(holding.table, positions)
        check_candidates(self._inputs.by_row[0], self.clicks)
        self.name = config.local if config.local in ("naml", "lstur", "nrms") else "naml"
        self.network = CandidateReader(config, self.name, self.coder, seeds("task"))
        self._learners = supervised_learners(self.network, config)
        self._dropouts = find_dropouts([self.network])
        self._seeds = seeds

    def learners(self) -> Sequence[Learner]:
        """Return what learns here."""
        return self._learners

    def reseed(self, step: int) -> None:
        """Set dropout for a step."""
        reseed_dropout(self._dropouts, self._seeds("dropout/task", step))

    def loss(self, code: torch.Tensor, batch: Places) -> torch.Tensor:
        """Return the mean negative logarithm of what the chosen candidates get."""
        logs = functional.log_softmax(self.score(code, batch), dim=1)
        chosen = self.clicks[torch.from_numpy(batch)] > 0
        return -(logs.masked_fill(~chosen, 0.0).sum(dim=1) / chosen.sum(dim=1)).mean()

    def score(self, code: torch.Tensor, rows: Places) -> torch.Tensor:
        """Return a score for every candidate of rows; nothing at all for those that a row lacks."""
        texts = self._inputs.texts
        if texts is None:
            raise TableError("Candidates have no texts.")
        return ranked(self.network, code, texts, self._inputs.by_row[0][torch.from_numpy(rows)])

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the task's model reads."""
        return self.coder.columns

    def document(self) -> dict[str, Any]:
        """Return what is kept with the weights."""
        return {"candidates": self.coder.to_json(), "reader": self.name, "outputs": self.outputs}


def ranked(network: nn.Module, code: torch.Tensor, texts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the products of codes with their rows' candidates; minus infinity where there is none."""
    vectors: torch.Tensor = network(texts, places)
    scores = (vectors * code[:, None, :]).sum(dim=2)
    return scores.masked_fill(places == 0, -math.inf)


def clicks_of(labels: npt.NDArray[Any]) -> torch.Tensor:
    """Read which candidates were chosen, such as '0 1 0', by row and candidate; -1 where a row has no more of them."""
    rows = [str(one).split() for one in labels]
    if any(not row or set(row) - {"0", "1"} or "1" not in row for row in rows):
        raise TableError(
            "A label of ranking must say for every candidate whether it was chosen, such as '0 1 0', with at least one "
            "chosen. Correct or leave out other rows."
        )
    most = max(map(len, rows))
    return torch.tensor([[int(one) for one in row] + [-1] * (most - len(row)) for row in rows])


def check_candidates(places: torch.Tensor, clicks: torch.Tensor) -> None:
    """Refuse rows that have other candidates than clicks."""
    if not bool(((places > 0) == (clicks >= 0)).all()):
        raise TableError(
            "Some rows have another number of candidates than of clicks, or candidates without a word. Give each "
            "candidate a text and each a 0 or 1, in the same order."
        )


def check_places(table: PartyTable, coder: TextCoder, positions: Places, places: torch.Tensor) -> None:
    """Refuse new rows without candidates, and those in which one would lose its place to the next."""
    counts = [len(split_texts(text)) for text in table.values(coder.column)[positions]]
    if 0 in counts or (places > 0).sum(dim=1).tolist() != counts:
        raise TableError(
            f"Some rows have no candidates, candidates without a word, or more candidates than the {places.shape[1]} "
            "that rows had in training. Leave these out, or train again with such rows."
        )


def make_task(session: Session, holding: Holding, config: FairVFL, seeds: Seeds) -> Supervised | Ranking:
    """Return what the label holder wants."""
    return (Ranking if config.task == "ranking" else Supervised)(session, holding, config, seeds)


def label_encoder_of(document: dict[str, Any]) -> LabelEncoder:
    """Return the label encoder that a part was kept with."""
    return LabelEncoder.from_json(document["label_encoder"])
