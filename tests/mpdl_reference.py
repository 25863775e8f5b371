"""Multi-party dual learning as one process would compute it: every party's rows in one place, gradients by autograd.

Written from the method's description alone, so that the product can be held against it. Holder 0 has the labels. A row
is either shared, that is known to all holders, or known to exactly one. All columns are in unit space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

FLOOR = 0.1
"""The least standard deviation by which a column is divided."""
REMEMBERED = 0.9
"""How much of a running variance stays at every step."""

Generate = Callable[[Tensor], Tensor]
"""Give the columns of all others, for standardised rows."""


@dataclass(frozen=True)
class Holder:
    """One holder's columns: first those that only it has, then those that all have."""

    units: Tensor
    own: int
    shared: Tensor  # places of the shared rows to learn from, in an order that all holders have
    only: Tensor  # places of rows that nobody else has

    @property
    def scale(self) -> tuple[Tensor, Tensor]:
        return measure(self.units[torch.cat([self.shared, self.only])])


def in_unit_space(values: Tensor, low: float, high: float) -> Tensor:
    return ((values - low) / (high - low)).clamp(0.0, 1.0)


def measure(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return columns' means and standard deviations, with the floor."""
    return rows.mean(dim=0), rows.std(dim=0, unbiased=False).clamp(min=FLOOR)


def standardised(rows: Tensor, scale: tuple[Tensor, Tensor]) -> Tensor:
    return (rows - scale[0]) / scale[1]


# Generators


def ridge(inputs: Tensor, targets: Tensor, penalties: Sequence[float], order: Tensor) -> Generate:
    """Return the ridge map whose penalty per row is best on the first fifth of the order."""

    def fit(rows: Tensor, penalty: float) -> Tensor:
        design = torch.cat([inputs[rows], torch.ones(len(rows), 1, dtype=inputs.dtype)], dim=1)
        weights = penalty * len(rows) * torch.eye(design.shape[1], dtype=inputs.dtype)
        weights[-1, -1] = 0.0  # the offset is free
        return torch.linalg.solve(design.T @ design + weights, design.T @ targets[rows])

    def apply(solution: Tensor, rows: Tensor) -> Tensor:
        return rows @ solution[:-1] + solution[-1]

    cut = len(order) // 5
    errors = [
        float(((apply(fit(order[cut:], one), inputs[order[:cut]]) - targets[order[:cut]]) ** 2).mean())
        for one in penalties
    ]
    best = fit(order, penalties[errors.index(min(errors))])
    return lambda rows: apply(best, rows)


def log_density(points: Tensor, support: Tensor, *, own: Tensor | None = None) -> Tensor:
    """Return log P(x) by the sheet's formula; `own` is the place of each point in the support, which is left out."""
    width = 1.05 * len(support) ** (-1 / 5)
    exponents = -((points[:, None, :] - support[None, :, :]) ** 2).sum(dim=2) / (2 * width**2)
    count = len(support)
    if own is not None:
        exponents = exponents.masked_fill(torch.arange(len(support))[None, :] == own[:, None], -math.inf)
        count -= 1
    columns = support.shape[1]
    constant = -math.log(count) - columns * math.log(width) - columns / 2 * math.log(2 * math.pi)
    return constant + torch.logsumexp(exponents, dim=1)


@dataclass(frozen=True)
class Dual:
    """What the training of two generators depends on."""

    weights: tuple[float, float] = (0.0, 0.0)  # of the penalty, by whose generator it trains
    form: str = "kde_generated"  # or gaussian_conditional
    is_raw: bool = False  # or divided by all columns of both sides
    rate: float = 0.1
    optimizer: str = "SGD"
    clip: float = 5.0  # of the gradient's norm

    @property
    def is_on(self) -> bool:
        return any(self.weights)


def log_normal(values: Tensor, mean: Tensor, variance: float) -> Tensor:
    return (-0.5 * ((values - mean) ** 2 / variance + math.log(2 * math.pi * variance))).sum(dim=1)


def dual_losses(
    generated: Sequence[Tensor], released: Sequence[Tensor], rows: Tensor, dual: Dual, variances: list[float]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the alignment losses and u_0 (of the label holder's columns) and u_1, all for these rows.

    `generated[k]` are columns of holder k as the other one generates them.
    """
    real = [table[rows] for table in released]
    aligned = [((one - other) ** 2).mean() for one, other in zip(generated, real, strict=True)]
    if not dual.is_on:
        return aligned, []
    columns = 1 if dual.is_raw else sum(table.shape[1] for table in released)
    found = []
    for place, (sign, table) in enumerate(zip((1.0, -1.0), released, strict=True)):
        expected = log_density(real[place], table, own=rows)
        if dual.form == "gaussian_conditional":
            fresh = max(float(((real[place] - generated[place].detach()) ** 2).mean()), 1e-6)
            old = variances[place]
            variances[place] = fresh if math.isnan(old) else REMEMBERED * old + (1 - REMEMBERED) * fresh
            here = log_normal(real[place], generated[place], variances[place])
        else:
            here = log_density(generated[place], table)
        found.append(sign * (here - expected) / columns)
    return aligned, found


def train_generators(
    networks: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    released: Sequence[Tensor],
    steps: Sequence[Tensor],
    dual: Dual,
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Train both generators; network k takes holder k's columns, and gives the other's."""
    variances = [math.nan, math.nan]
    for rows in steps:
        outputs = [network(one[rows]) for network, one in zip(networks, inputs, strict=True)]
        aligned, parts = dual_losses(outputs[::-1], released, rows, dual, variances)
        for place in (0, 1):
            loss = aligned[1 - place]
            if parts:
                # Both know the sum of both parts, but each generator moves its own part only.
                loss = loss + dual.weights[place] * ((parts[1 - place] + parts[place].detach()) ** 2).mean()
            gradients = torch.autograd.grad(loss, list(networks[place].parameters()), retain_graph=True)
            for parameter, gradient in zip(networks[place].parameters(), gradients, strict=True):
                parameter.grad = gradient
        for network, optimizer in zip(networks, optimizers, strict=True):
            if dual.clip:
                nn.utils.clip_grad_norm_(network.parameters(), dual.clip)
            optimizer.step()


# The classifier


@dataclass(frozen=True)
class Picture:
    """Where columns lie in a picture: `own[k]` for holder k's columns, in the order of its units."""

    shape: tuple[int, int, int]
    own: Sequence[Tensor]

    def drawn(self, values: Tensor, places: Tensor) -> Tensor:
        flat = torch.zeros(len(values), math.prod(self.shape), dtype=values.dtype)
        flat[:, places] = values
        return flat.reshape(len(values), *self.shape)


@dataclass(frozen=True)
class World:
    """All holders, and what each generates of the others' columns."""

    holders: Sequence[Holder]
    generators: Sequence[Generate]
    learned: Tensor  # which of the shared rows are learned from
    completion: str = "own_copy"
    augment: bool = True
    picture: Picture | None = None
    is_tied: bool = False

    def fed(self, place: int) -> int:
        """Return how many columns of a holder enter: those that all have come from the label holder only."""
        holder = self.holders[place]
        return holder.units.shape[1] if place == 0 else holder.own

    def generated(self, place: int, rows: Tensor) -> list[Tensor]:
        """Return what a holder makes of each other holder's columns, with those that all have at the label holder."""
        holder = self.holders[place]
        columns = self.generators[place](standardised(holder.units[rows], holder.scale)).clamp(0.0, 1.0)
        others = [other for other in range(len(self.holders)) if other != place]
        parts = list(torch.split(columns, [self.holders[other].own for other in others], dim=1))
        if place != 0:
            parts[0] = torch.cat([parts[0], holder.units[rows][:, holder.own :]], dim=1)
        return parts

    def rows(self, model: str) -> tuple[list[Tensor], list[Tensor]]:
        """Return what every holder contributes to every row, and the labels' places in holder 0's table."""
        shared = [holder.shared[self.learned] for holder in self.holders]
        segments = [[self._whole(place, shared[place], model) for place in range(len(self.holders))]]
        labels = [shared[0]]
        if model == "completed":
            owners = [(0, self.holders[0].only, self.holders[0].only)]
            if self.augment:
                owners += [(place, shared[place], shared[0]) for place in range(1, len(self.holders))]
            for owner, rows, labelled in owners:
                segments.append([self._completed(place, owner, rows) for place in range(len(self.holders))])
                labels.append(labelled)
        return [torch.cat(parts) for parts in zip(*segments, strict=True)], labels

    def widths(self, model: str) -> list[int]:
        return [one.shape[1] for one in self.rows(model)[0]]

    def _has_copies(self, model: str) -> bool:
        return model == "completed" and self.completion == "own_copy" and not (self.picture and self.is_tied)

    def _entered(self, place: int, units: Tensor) -> Tensor:
        if self.picture is not None:
            return self.picture.drawn(units, self.picture.own[place][: self.fed(place)])
        mean, spread = self.holders[place].scale
        return standardised(units, (mean[: self.fed(place)], spread[: self.fed(place)]))

    def _room(self, place: int, rows: int) -> Tensor:
        if self.picture is not None:
            return torch.zeros(rows, *self.picture.shape, dtype=torch.float64)
        others = sum(self.holders[other].own for other in range(len(self.holders)) if other != place)
        common = 0 if place == 0 else self.holders[place].units.shape[1] - self.holders[place].own
        return torch.zeros(rows, others + common, dtype=torch.float64)

    def _whole(self, place: int, rows: Tensor, model: str) -> Tensor:
        own = self._entered(place, self.holders[place].units[rows][:, : self.fed(place)])
        return torch.cat([own, self._room(place, len(rows))], dim=1) if self._has_copies(model) else own

    def _completed(self, place: int, owner: int, rows: Tensor) -> Tensor:
        """Return what a holder contributes to rows that stand for those which only the owner knows."""
        if self.completion == "own_copy":
            if place != owner:
                return torch.zeros_like(self._whole(place, self.holders[place].shared[:1], "completed")).repeat(
                    len(rows), *[1] * (3 if self.picture else 1)
                )
            own = self._entered(place, self.holders[place].units[rows][:, : self.fed(place)])
            return self._joined(own, self._copied(place, rows))
        if place == owner:
            return self._whole(place, rows, "completed")
        others = [other for other in range(len(self.holders)) if other != owner]
        return self._entered(place, self.generated(owner, rows)[others.index(place)])

    def _joined(self, own: Tensor, copied: Tensor) -> Tensor:
        return own + copied if self.picture and self.is_tied else torch.cat([own, copied], dim=1)

    def _copied(self, place: int, rows: Tensor) -> Tensor:
        """Return generated columns as weights of the generating holder's own take them."""
        if self.picture is not None:
            others = [other for other in range(len(self.holders)) if other != place]
            places = torch.cat([self.picture.own[other][: self.holders[other].own] for other in others])
            return self.picture.drawn(torch.cat(self.generated(place, rows), dim=1), places)
        every = self._side_by_side(place, self.holders[place].shared[self.learned])
        return standardised(self._side_by_side(place, rows), measure(every))

    def _side_by_side(self, place: int, rows: Tensor) -> Tensor:
        parts = self.generated(place, rows)
        if place == 0:
            return torch.cat(parts, dim=1)
        own = self.holders[0].own
        return torch.cat([parts[0][:, :own], *parts[1:], parts[0][:, own:]], dim=1)


class Classifier(nn.Module):
    """The whole network in one place: a first layer over all holders' columns side by side, and what lies above."""

    def __init__(self, blocks: Sequence[Tensor], offset: Tensor, above: nn.Module, *, is_tied: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ParameterList([nn.Parameter(one.clone()) for one in (blocks[:1] if is_tied else blocks)])
        self.offset, self.above, self.is_tied = nn.Parameter(offset.clone()), above, is_tied

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        if self.is_tied:
            first = functional.conv2d(torch.stack(list(rows)).sum(dim=0), self.blocks[0], padding="same")
        elif rows[0].ndim == 4:
            first = functional.conv2d(torch.cat(list(rows), dim=1), torch.cat(list(self.blocks), dim=1), padding="same")
        else:
            first = torch.cat(list(rows), dim=1) @ torch.cat(list(self.blocks), dim=1).T
        found: Tensor = self.above(torch.relu(first + self.offset))
        return found

    @property
    def parties(self) -> list[list[nn.Parameter]]:
        """Return what each party trains: the holders their blocks, the collaborator the rest."""
        return [*[[block] for block in self.blocks], [self.offset, *self.above.parameters()]]


def row_losses(task: str, logits: Tensor, targets: Tensor) -> Tensor:
    if task == "multiclass":
        return functional.cross_entropy(logits, targets, reduction="none")
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
    return (logits[:, 0] - targets) ** 2


def train_classifier(
    network: Classifier,
    rows: Sequence[Tensor],
    targets: Tensor,
    task: str,
    orders: Sequence[Tensor],
    batch_size: int,
    *,
    rate: float,
    clip: float,
    optimizer: str = "SGD",
) -> None:
    """Train on all rows in these orders, one for each epoch; each party shortens the gradient of what it trains."""
    steps = [getattr(torch.optim, optimizer)(part, lr=rate) for part in network.parties]
    for order in orders:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            network.zero_grad()
            row_losses(task, network([one[batch] for one in rows]), targets[batch]).mean().backward()
            for part, step in zip(network.parties, steps, strict=True):
                if clip:
                    nn.utils.clip_grad_norm_(part, clip)
                step.step()
