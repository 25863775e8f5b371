"""What FairVFL is compared with, in one place and in plain PyTorch: a model without removal, FairGo, FairSM, FairRec.

All have the local models, the aggregator and the task's model of the product's paper settings, with the same width and
optimizer. Adversaries learn as fast as those of robust removal. How they are told to hide attributes is
each rival's own, as far as one page can follow it:

- FairGo: one filter for each attribute on the code, their outputs averaged, one adversary for each attribute on that.
- FairSM: filters are trained each by itself, with its own adversary, and averaged afterwards; then the task learns.
- FairRec: a second model is made to tell the attributes, an adversary cleans the first, and the two are kept at right
  angles; their sum learns the task, and the first alone is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from benchmarks.papers.fairvfl_world import World, applied
from colonnade import FairVFL
from colonnade.methods.fairvfl.inputs import FieldCoder, Inputs
from colonnade.methods.fairvfl.maths import cooled_down
from colonnade.methods.fairvfl.networks import build_aggregator, build_local, build_task
from colonnade.nn import find_dropouts, mlp, reseed_dropout

RIVALS = ("central", "FairGo", "FairSM", "FairRec")
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trained:
    """The representation and the task's scores of all rows."""

    codes: torch.Tensor
    logits: torch.Tensor


class Encoder(nn.Module):
    """All local models and the aggregator."""

    def __init__(self, world: World, config: FairVFL, coders: Sequence[FieldCoder], seed: int) -> None:
        super().__init__()
        self.locals = nn.ModuleList(
            build_local(config, party, coder, seed * 100 + place)
            for place, (party, coder) in enumerate(zip(world.coders, coders, strict=True))
        )
        self.aggregator = build_aggregator(config, len(coders), seed * 100 + 50)

    def forward(self, inputs: Sequence[Inputs], rows: torch.Tensor) -> torch.Tensor:
        codes = [one(*own.take(rows)) for one, own in zip(self.locals, inputs, strict=True)]
        there = torch.stack([torch.from_numpy(own.is_there[rows.numpy()]) for own in inputs], dim=1)
        return self.aggregator(torch.stack(codes, dim=1), there)

    def all(self, inputs: Sequence[Inputs]) -> torch.Tensor:
        self.eval()
        values = torch.stack([applied(one, own) for one, own in zip(self.locals, inputs, strict=True)], dim=1)
        there = torch.stack([torch.from_numpy(own.is_there) for own in inputs], dim=1)
        with torch.no_grad():
            return self.aggregator(values, there)


class Rival:
    """One rival under training."""

    def __init__(self, kind: str, world: World, config: FairVFL, seed: int) -> None:
        self.kind, self.world, self.config, self.seed = kind, world, config, seed
        train = world.split.train
        tables = [world.tables[party] for party in world.coders]
        coders = [FieldCoder.fit(table, table.feature_names, train, config.bins) for table in tables]
        self.inputs = [
            coder.transform(table, np.arange(table.rows)) for coder, table in zip(coders, tables, strict=True)
        ]
        labels = world.tables[world.label_holder].labels
        assert labels is not None
        self.labels = torch.from_numpy(np.unique(labels.astype(str), return_inverse=True)[1]).float()
        self.attributes = {name: torch.from_numpy(world.attribute(name)) for name in config.removed}
        width = config.unified_width
        self.encoder = Encoder(world, config, coders, seed)
        self.second = Encoder(world, config, coders, seed + 1000) if kind == "FairRec" else None
        self.task = build_task(config, 1, seed + 3)
        self.filters = nn.ModuleDict(
            {name: mlp((width, width, width), seed=seed + 10 + place) for place, name in enumerate(self.attributes)}
        )
        self.adversaries = nn.ModuleDict()
        self.tellers = nn.ModuleDict()
        for place, (name, values) in enumerate(self.attributes.items()):
            classes = int(values.max()) + 1
            self.adversaries[name] = mlp((width, 256, classes), seed=seed + 20 + place)
            self.tellers[name] = mlp((width, 256, classes), seed=seed + 30 + place)
        everything = [self.encoder, self.task]
        everything += [self.filters] if kind in ("FairGo", "FairSM") else []
        everything += [self.second, self.tellers] if self.second is not None else []
        self._modules_all = [one for one in everything if one is not None]
        self.main = torch.optim.Adam(
            [parameter for one in self._modules_all for parameter in one.parameters()], lr=config.learning_rate
        )
        self.against = None
        if self.attributes and kind != "central":
            rate = config.learning_rate * config.discriminator_rate
            self.against = torch.optim.Adam(self.adversaries.parameters(), lr=rate)

    def train(self) -> Trained:
        """Train all epochs."""
        draw, step = np.random.default_rng(self.seed), 0
        steps = -(-len(self.world.split.train) // self.config.batch_size)
        every = steps * self.config.epochs
        for _ in range(self.config.epochs):
            order = draw.permutation(self.world.split.train)
            for start in range(0, len(order), self.config.batch_size):
                step += 1
                self.main.param_groups[0]["lr"] = self.config.learning_rate * cooled_down(
                    step, every, self.config.cool_down
                )
                rows = torch.from_numpy(order[start : start + self.config.batch_size])
                self._step(rows, min(1.0, step / max(self.config.warm_up * steps, 1)), step)
        codes = self._filtered(self.encoder.all(self.inputs))
        self.task.eval()
        with torch.no_grad():
            return Trained(codes, self.task(codes))

    def _filtered(self, codes: torch.Tensor) -> torch.Tensor:
        if self.kind not in ("FairGo", "FairSM") or not self.filters:
            return codes
        self.filters.eval()
        with torch.no_grad():
            return torch.stack([one(codes) for one in self.filters.values()]).mean(dim=0)

    def _step(self, rows: torch.Tensor, share: float, step: int) -> None:
        for one in self._modules_all:
            one.train()
        reseed_dropout(find_dropouts(self._modules_all), self.seed * 10**6 + step)
        codes = self.encoder(self.inputs, rows)
        hidden = self._hidden(codes)
        for _ in range(self.config.discriminator_steps if self.against is not None else 0):
            self.against.zero_grad()
            sum(self._told(hidden, name, rows, detach=True) for name in self.attributes).backward()
            self.against.step()
        loss = self._task_loss(codes, hidden, rows)
        if self.kind != "central":
            for name in self.attributes:
                loss = loss - share * self.config.weight_of(name) * self._told(hidden, name, rows, detach=False)
        if self.second is not None:
            loss = loss + self._second_loss(hidden["code"], rows)
        self.main.zero_grad()
        loss.backward()
        for one in self._modules_all:
            nn.utils.clip_grad_norm_(one.parameters(), self.config.clip_gradient)
        self.main.step()

    def _hidden(self, codes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what the adversary of each attribute sees, and the code that the task reads."""
        if self.kind == "FairGo":
            mean = torch.stack([one(codes) for one in self.filters.values()]).mean(dim=0)
            return {**dict.fromkeys(self.attributes, mean), "code": mean}
        if self.kind == "FairSM":
            each = {name: self.filters[name](codes) for name in self.attributes}
            return {**each, "code": torch.stack(list(each.values())).mean(dim=0)}
        return {**dict.fromkeys(self.attributes, codes), "code": codes}

    def _told(self, hidden: dict[str, torch.Tensor], name: str, rows: torch.Tensor, *, detach: bool) -> torch.Tensor:
        seen = hidden[name].detach() if detach else hidden[name]
        return functional.cross_entropy(self.adversaries[name](seen), self.attributes[name][rows])

    def _task_loss(self, codes: torch.Tensor, hidden: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        wanted = self.labels[rows]
        if self.kind == "FairSM":
            # Each filter keeps what the task needs by itself; the average only learns to be read.
            each = [self.task(hidden[name]).squeeze(1) for name in self.attributes]
            each.append(self.task(hidden["code"].detach()).squeeze(1))
            return torch.stack([functional.binary_cross_entropy_with_logits(one, wanted) for one in each]).mean()
        code = hidden["code"]
        if self.second is not None:
            code = code + self.second(self.inputs, rows)
        return functional.binary_cross_entropy_with_logits(self.task(code).squeeze(1), wanted)

    def _second_loss(self, code: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        assert self.second is not None
        aware = self.second(self.inputs, rows)
        told = [functional.cross_entropy(self.tellers[n](aware), v[rows]) for n, v in self.attributes.items()]
        across = functional.cosine_similarity(aware, code, dim=1).abs().mean()
        return torch.stack(told).sum() + across
