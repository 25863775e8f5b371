"""The feature holder's networks under training: groups, discriminators, and what they learn from. No session here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.groups import Columns
from colonnade.methods.prada.head import LARGEST
from colonnade.nn import (
    FeatureGroups,
    Learner,
    WeightAverage,
    backpropagate,
    discriminator,
    find_dropouts,
    reseed_dropout,
    reverse_gradient,
    tensors_under,
)

__all__ = ["Extractors", "density_weights"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Seeds = Callable[[str, int], int]

# Rows that go through the network at once where nothing is learned.
_CHUNK = 8192
# Rows of each domain that its likeness is estimated from.
_FITTED = 20_000


class Extractors:
    """The groups' networks, their discriminators and optimizers.

    ``domains`` counts sources and one for the targets, whose number is 0. ``only`` names the rows of embedding tables
    that alone may change; None lets everything learn.
    """

    def __init__(
        self,
        config: PrADA,
        network: FeatureGroups,
        columns: Columns,
        seeds: Seeds,
        *,
        domains: int,
        rate: float,
        only: Mapping[str, Sequence[int]] | None = None,
        purpose: str = "",
    ) -> None:
        self._config, self.network, self._columns, self._seeds, self._purpose = config, network, columns, seeds, purpose
        self._rate, self._only = rate, only
        self._learner = Learner({"groups": network}, config.optimizer, rate, config.optimizer_options)
        self._average = WeightAverage(network, config.weight_average if only is None else 0.0)
        self._dropouts = find_dropouts([network])
        self.clipped = 0
        self._domains = domains
        self._judges: Learner | None = None
        self._seen = [0.0, 0.0, 0.0]
        if domains > 1:
            dtype = next(network.parameters()).dtype
            judges = {
                f"discriminator {place}": discriminator(
                    width, domains, seed=seeds(f"{purpose}discriminator", place), dtype=dtype
                )
                for place, width in enumerate(network.feature_widths)
            }
            rate = rate * config.domain_rate
            self._judges = Learner(judges, config.optimizer, rate, config.optimizer_options)
            self._judges.train(True)
        network.train(only is None)

    def adapt(self, step: int, progress: float, source: Places, domain: int, target: Places) -> None:
        """Take one adversarial step: discriminators learn to tell domains apart, and groups not to be told apart."""
        if self._judges is None:
            return
        config = self._config
        factor = config.reversal(progress)
        self._begin(step, progress, "adversarial")
        self._judges.set_rate(self._rate * config.domain_rate * config.fall(progress))
        self._judges.zero_gradients()
        rows = [self._columns.take(source), self._columns.take(target)]
        wanted = [torch.full((len(source),), domain), torch.zeros(len(target), dtype=torch.long)]
        if config.batch_norm == "together":
            joined = Columns(torch.cat([one.codes for one in rows]), torch.cat([one.numbers for one in rows]))
            parts = [(joined, [slice(0, len(source)), slice(len(source), None)])]
        else:
            parts = [(one, [slice(None)]) for one in rows]
        loss, right, count, place = torch.zeros(()), 0.0, 0, 0
        for one, slices in parts:
            features = self.network.features(one.codes, one.numbers)
            outputs = [
                judge(reverse_gradient(feature, factor))
                for judge, feature in zip(self._judges.modules.values(), features, strict=True)
            ]
            for cut in slices:
                for output in outputs:
                    loss = loss + functional.cross_entropy(output[cut], wanted[place])
                    right += float((output[cut].argmax(1) == wanted[place]).float().mean())
                    count += 1
                place += 1
        loss.backward()  # type: ignore[no-untyped-call]
        self._learner.step()
        self._judges.step()
        self._seen = [self._seen[0] + 1, self._seen[1] + right / count, self._seen[2] + loss.item() / count]

    def forward(self, step: int, rows: Places) -> torch.Tensor:
        """Return the groups' numbers of a batch, ready for a gradient."""
        reseed_dropout(self._dropouts, self._seeds(f"{self._purpose}dropout", step))
        one = self._columns.take(rows)
        values: torch.Tensor = self.network(one.codes, one.numbers)
        self.clipped += int((values.detach().abs() > LARGEST).sum())
        return values.clamp(-LARGEST, LARGEST)

    def learn(self, values: torch.Tensor, gradient: Numbers, progress: float) -> None:
        """Learn from the gradient at a batch's numbers."""
        self._learner.set_rate(self._rate * self._config.fall(progress))
        self._learner.zero_gradients()
        backpropagate(values, torch.from_numpy(gradient).to(values.dtype))
        if self._only is not None:
            self._keep_others_still()
        self._learner.step()
        self._average.update()

    def values(self, rows: Places) -> Numbers:
        """Return the groups' numbers of rows that are only scored, by the averaged weights."""
        outputs = self._evaluated(rows, lambda network, one: [network(one.codes, one.numbers)])[0]
        return np.clip(outputs, -LARGEST, LARGEST)

    def features(self, rows: Places) -> list[Numbers]:
        """Return every group's representation of rows, by the averaged weights."""
        return self._evaluated(rows, lambda network, one: network.features(one.codes, one.numbers))

    def domain_accuracy(self) -> dict[str, float]:
        """Return how well the discriminators did since this was last asked."""
        steps, right, loss = self._seen
        self._seen = [0.0, 0.0, 0.0]
        return {"domain_accuracy": right / steps, "domain_loss": loss / steps} if steps else {}

    def keep_best(self) -> None:
        """Remember the weights as they are now: the averaged ones, where an average is kept."""
        with self._average.in_use():
            self._learner.keep_best()

    def settle(self) -> None:
        """Go back to the best weights for good."""
        self._average.values = {}
        self._learner.restore_best()

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self._learner.state()
        found = {f"groups/{name}": value for name, value in tensors.items()}
        documents = {"groups": document, "clipped": self.clipped, "seen": self._seen}
        found |= {f"average/{name}": value for name, value in self._average.values.items()}
        if self._judges is not None:
            tensors, documents["judges"] = self._judges.state()
            found |= {f"judges/{name}": value for name, value in tensors.items()}
        return found, documents

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._learner.load_state(tensors_under("groups/", tensors), document["groups"])
        self._average.values = tensors_under("average/", tensors)
        self.clipped, self._seen = document["clipped"], list(document["seen"])
        if self._judges is not None:
            self._judges.load_state(tensors_under("judges/", tensors), document["judges"])

    def _begin(self, step: int, progress: float, purpose: str) -> None:
        self._learner.set_rate(self._rate * self._config.fall(progress))
        self._learner.zero_gradients()
        reseed_dropout(self._dropouts, self._seeds(f"{self._purpose}{purpose} dropout", step))

    def _keep_others_still(self) -> None:
        """Leave only the gradients of the chosen rows of embedding tables."""
        only = self._only or {}
        chosen = {id(self.network.table(name)): list(rows) for name, rows in only.items()}
        for parameter in self.network.parameters():
            rows = chosen.get(id(parameter))
            if rows is None or parameter.grad is None:
                parameter.grad = None
                continue
            kept = parameter.grad[rows].clone()
            parameter.grad.zero_()
            parameter.grad[rows] = kept

    def _evaluated(self, rows: Places, apply: Callable[[FeatureGroups, Columns], list[torch.Tensor]]) -> list[Numbers]:
        # In double precision: a row's numbers must not depend on which others are computed with it.
        with self._average.in_use():
            network = copy.deepcopy(self.network).double()
        network.eval()
        found: list[list[Numbers]] = []
        with torch.no_grad():
            # At least one piece, so that no rows have the right shape too.
            for start in range(0, max(len(rows), 1), _CHUNK):
                some = self._columns.take(rows[start : start + _CHUNK])
                outputs = apply(network, Columns(some.codes, some.numbers.double()))
                found.append([output.numpy() for output in outputs])
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def density_weights(columns: Columns, sizes: Sequence[int], source: Places, target: Places, seed: int) -> Numbers:
    """Return for each source row how much likelier it is among target rows, as far as a linear model can tell.

    ``sizes`` are the numbers of categories by categorical column. The weights add up to 1.
    """
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(seed)
    chosen = [draw.permutation(rows)[:_FITTED] for rows in (source, target)]
    offsets = np.cumsum([0, *sizes])
    fitted = columns.take(np.concatenate(chosen))
    inputs = np.zeros((len(fitted.codes), int(offsets[-1])), dtype=np.float32)
    np.put_along_axis(inputs, fitted.codes.numpy() + offsets[:-1], 1.0, axis=1)
    inputs = np.concatenate([inputs, fitted.numbers.numpy().astype(np.float32)], axis=1)
    labels = np.repeat([0, 1], [len(rows) for rows in chosen])
    weights = LogisticRegression(C=0.1, max_iter=200).fit(inputs, labels).coef_[0].astype(np.float64)
    every = columns.take(source)
    logits = weights[every.codes.numpy() + offsets[:-1]].sum(axis=1)
    logits = logits + every.numbers.double().numpy() @ weights[offsets[-1] :]
    # Differences between logits only: how many rows each domain has must not matter.
    ratios = np.exp(np.clip(logits - np.median(logits), -5.0, 5.0))
    return np.asarray(ratios / ratios.sum())
