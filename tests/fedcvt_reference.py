"""FedCVT as one process would compute it: every party's rows in one place, all gradients by autograd.

Written from the method's description alone, so that the product can be held against it. Party 0 has the labels; the
others are feature parties. A row is either aligned, that is known to all parties, or known to exactly one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor, nn
from torch.nn import functional

# The paper's names of the terms: pull is "diff AB", fit is "diff A" and "diff B", orthogonal is "sim A" and "sim B".


@dataclass(frozen=True)
class Settings:
    """What the objective depends on; the paper's l1 to l5 are the five weights, in this order."""

    pull: float = 0.1
    fit_label_party: float = 0.1
    fit_feature_party: float = 0.1
    orthogonal_label_party: float = 0.1
    orthogonal_feature_party: float = 0.1
    temperature: float = 0.5
    threshold: float = 0.5
    task: str = "multiclass"  # or binary: one logit; or regression: one value
    self_mask: bool = True
    orthogonality: str = "inner"  # or gram, or dsn
    pair_reduction: str = "sum"  # or mean: pull by the shared width, fit by the width of a whole code
    anchored: bool = False
    detached: bool = False
    one_sided_pull: bool = False  # the feature party's code is a constant in the pull term
    pseudo_from_step: int | None = 0  # None: rows of a feature party alone are never labelled
    tolerance: float = 0.25  # regression: heads agree when they differ by less than this share of `label_spread`
    label_spread: float = 1.0
    estimated_weight: float = 1.0
    # Which heads apply `estimated_weight`, beside the joint one, and to which rows. "feature_heads": the head of every
    # feature party, to every row with an estimated view. "own_view": every head, to the rows whose view it estimates.
    weighted_heads: str = "feature_heads"


@dataclass
class Networks:
    """Hold two encoders and a head of every party, and the head of all views (party by party; shared, then unique)."""

    shared: list[nn.Module]
    unique: list[nn.Module]
    heads: list[nn.Module]
    joint: nn.Module

    def party(self, party: int) -> list[nn.Parameter]:
        """Return what a party trains: its encoders, and at the label party all heads."""
        modules = [self.shared[party], self.unique[party]]
        modules += [*self.heads, self.joint] if party == 0 else []
        return [parameter for module in modules for parameter in module.parameters()]

    def everything(self) -> list[nn.Parameter]:
        return [parameter for party in range(len(self.shared)) for parameter in self.party(party)]


@dataclass(frozen=True)
class Batch:
    """Name the rows of one step by their places in each party's table."""

    aligned: Sequence[Sequence[int]]  # one list per party, all of one length and in one order
    only: Sequence[Sequence[int]]  # one list per party: rows nobody else has


@dataclass(frozen=True)
class Codes:
    """Hold one party's representations of some rows."""

    shared: Tensor
    unique: Tensor

    @property
    def whole(self) -> Tensor:
        return torch.cat([self.shared, self.unique], dim=1)


@dataclass
class Terms:
    """Hold the objective, its terms before they are weighted, and what the pseudo-label rule kept."""

    total: Tensor
    joint: Tensor
    heads: list[Tensor]
    pull: Tensor
    fit: list[Tensor]
    orthogonal: list[Tensor]
    kept: list[Tensor] = field(default_factory=list)  # per feature party, true for rows that were labelled
    pseudo_labels: list[Tensor] = field(default_factory=list)  # per feature party, of the kept rows


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, temperature: float, *, mask_diagonal: bool = False, detached: bool
) -> Tensor:
    """Return g(Q, K, V; T); with `mask_diagonal`, query i does not see key i."""
    logits = queries @ keys.T / (math.sqrt(queries.shape[1]) * temperature)
    if mask_diagonal:
        own = torch.eye(len(queries), len(keys), dtype=torch.bool)
        logits = logits.masked_fill(own, -torch.inf)
    weights = torch.softmax(logits, dim=1)
    return (weights.detach() if detached else weights) @ values


def estimate(
    rows: Codes,
    seen: tuple[Codes, Codes],
    missing: tuple[Codes, Codes],
    settings: Settings,
    *,
    are_aligned: bool = False,
) -> Codes:
    """Return the codes a missing party would have of rows another party has seen.

    `seen` and `missing` are the two parties' codes of the aligned rows and of the rows only they have. `are_aligned`
    says that the rows are the aligned rows themselves, which then must not look at their own answer.
    """
    masked = are_aligned and settings.self_mask
    more = {"mask_diagonal": masked, "detached": settings.detached}
    if settings.anchored:
        keys, values = seen[0].shared, missing[0].shared
    else:
        # Aligned rows come first, so that an aligned row's counterpart lies on the diagonal.
        keys = values = torch.cat([missing[0].shared, missing[1].shared])
    return Codes(
        attention(rows.shared, keys, values, settings.temperature, **more),
        attention(rows.unique, seen[0].unique, missing[0].unique, settings.temperature, **more),
    )


def orthogonality(unique: Tensor, shared: Tensor, form: str) -> Tensor:
    """Return how far the two kinds of codes are from being orthogonal."""
    if form == "inner":
        return (unique * shared).sum(1).square().mean()
    if form == "gram":
        return torch.linalg.matrix_norm(unique @ shared.T) / len(unique)
    if form == "dsn":
        return (unique.T @ shared).square().sum() / len(unique)
    raise ValueError(f"no orthogonality '{form}'")


def agreed(outputs: Sequence[Tensor], settings: Settings) -> tuple[Tensor, Tensor]:
    """Return which rows all heads agree on, and the label of every row (meaningful where they agree)."""
    if settings.task == "regression":
        limit = settings.tolerance * settings.label_spread
        values = [output.squeeze(1) for output in outputs]
        apart = torch.stack([(one - other).abs() for one, other in combinations(values, 2)])
        return (apart < limit).all(0), torch.stack(values).mean(0)
    if settings.task == "binary":
        chances = torch.stack([torch.sigmoid(output.squeeze(1)) for output in outputs])
        classes = (chances > 0.5).long()
        confidence = torch.maximum(chances, 1 - chances)
    else:
        confidence, classes = torch.stack([torch.softmax(output, 1) for output in outputs]).max(2)
    same = (classes == classes[0]).all(0)
    return same & (confidence.amin(0) > settings.threshold), classes[0]


def row_losses(outputs: Tensor, labels: Tensor, task: str) -> Tensor:
    """Return one loss per row."""
    if task == "regression":
        return (outputs.squeeze(1) - labels).square()
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(
            outputs.squeeze(1), labels.to(outputs.dtype), reduction="none"
        )
    return functional.cross_entropy(outputs, labels, reduction="none")


def objective(
    networks: Networks, tables: Sequence[Tensor], labels: Tensor, batch: Batch, settings: Settings, step: int = 0
) -> Terms:
    """Return the objective of one step: `labels` belong to the rows of the label party's table."""
    parties = range(len(tables))
    aligned, only = [], []
    for party in parties:
        places = [*batch.aligned[party], *batch.only[party]]
        inputs = tables[party][places]
        shared, unique = networks.shared[party](inputs), networks.unique[party](inputs)
        count = len(batch.aligned[party])
        aligned.append(Codes(shared[:count], unique[:count]))
        only.append(Codes(shared[count:], unique[count:]))
    both = list(zip(aligned, only, strict=True))

    # Groups of rows with a label: all parties' codes, the labels, and which parties' codes are estimates.
    groups = [(aligned, labels[list(batch.aligned[0])], set[int]())]
    if len(batch.only[0]):
        views = _completed(0, both, settings)
        groups.append((views, labels[list(batch.only[0])], set(parties) - {0}))
    kept, pseudo_labels = [], []
    for party in parties[1:]:
        keep, guesses = torch.zeros(len(batch.only[party]), dtype=torch.bool), labels[:0]
        if settings.pseudo_from_step is not None and step >= settings.pseudo_from_step and len(keep):
            views = _completed(party, both, settings)
            with torch.no_grad():
                keep, every = agreed([*_head_outputs(networks, views), _joint_output(networks, views)], settings)
            guesses = every[keep]
            if keep.any():
                views = [Codes(view.shared[keep], view.unique[keep]) for view in views]
                groups.append((views, guesses, set(parties) - {party}))
        kept.append(keep)
        pseudo_labels.append(guesses)

    rows = sum(len(answers) for _, answers, _ in groups)
    joint, heads = torch.zeros(()), [torch.zeros(()) for _ in parties]
    for views, answers, estimated in groups:
        weight = settings.estimated_weight if estimated else 1.0
        joint = joint + weight * row_losses(_joint_output(networks, views), answers, settings.task).sum() / rows
        for party, output in enumerate(_head_outputs(networks, views)):
            is_weighted = party in estimated if settings.weighted_heads == "own_view" else party > 0
            factor = weight if is_weighted else 1.0
            heads[party] = heads[party] + factor * row_losses(output, answers, settings.task).sum() / rows

    pull = _pull(aligned, settings)
    fit = [_fit(party, both, settings) for party in parties]
    orthogonal = [
        orthogonality(torch.cat([one.unique, two.unique]), torch.cat([one.shared, two.shared]), settings.orthogonality)
        for one, two in both
    ]
    total = joint + sum(heads) + settings.pull * pull
    for party in parties:
        total = total + (settings.fit_feature_party if party else settings.fit_label_party) * fit[party]
        factor = settings.orthogonal_feature_party if party else settings.orthogonal_label_party
        total = total + factor * orthogonal[party]
    return Terms(total, joint, heads, pull, fit, orthogonal, kept, pseudo_labels)


def train(
    networks: Networks,
    tables: Sequence[Tensor],
    labels: Tensor,
    batches: Iterable[Batch],
    settings: Settings,
    optimizers: Sequence[torch.optim.Optimizer],
) -> list[Terms]:
    """Take one step per batch with every optimizer, all from the same gradients, and return the terms of all steps."""
    history = []
    for step, batch in enumerate(batches):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        terms = objective(networks, tables, labels, batch, settings, step)
        terms.total.backward()
        for optimizer in optimizers:
            optimizer.step()
        history.append(terms)
    return history


def encode(networks: Networks, party: int, inputs: Tensor) -> Codes:
    """Return a party's codes of some rows."""
    return Codes(networks.shared[party](inputs), networks.unique[party](inputs))


def predict(
    networks: Networks,
    inputs: Sequence[Tensor | None],
    aligned: Sequence[Tensor],
    only: Sequence[Tensor],
    settings: Settings,
) -> tuple[Tensor, list[Tensor]]:
    """Return the joint head's and the heads' outputs for new rows; a party without the rows gives None.

    A missing view is the average of its estimates from every view that is there; `aligned` and `only` are the inputs of
    the training rows to estimate from.
    """
    both = [
        (encode(networks, party, one), encode(networks, party, two))
        for party, (one, two) in enumerate(zip(aligned, only, strict=True))
    ]
    seen = {party: encode(networks, party, rows) for party, rows in enumerate(inputs) if rows is not None}
    views = []
    for party in range(len(inputs)):
        guesses = [estimate(rows, both[other], both[party], settings) for other, rows in seen.items()]
        views.append(seen[party] if party in seen else _averaged(guesses))
    return _joint_output(networks, views), _head_outputs(networks, views)


def fit_share(shared: Tensor, unique: Sequence[Tensor], temperature: float, *, self_mask: bool) -> float:
    """Return the error of estimating aligned codes from one another, as a share of their energy.

    The shared codes are the same at all parties, as the pull term would have them; the unique ones are given.
    """
    settings = Settings(temperature=temperature, self_mask=self_mask)
    both = [(Codes(shared, codes), Codes(shared[:0], codes[:0])) for codes in unique]
    energy = sum(codes.whole.square().sum(1).mean() for codes, _ in both)
    return float(sum(_fit(party, both, settings) for party in range(len(both))) / energy)


def _completed(present: int, both: Sequence[tuple[Codes, Codes]], settings: Settings) -> list[Codes]:
    """Return all parties' codes of the rows that only one party has."""
    rows = both[present][1]
    return [
        rows if party == present else estimate(rows, both[present], both[party], settings) for party in range(len(both))
    ]


def _pull(aligned: Sequence[Codes], settings: Settings) -> Tensor:
    """Return how far the feature parties' shared codes lie from the label party's, one term each."""
    width = aligned[0].shared.shape[1] if settings.pair_reduction == "mean" else 1
    theirs = [codes.shared.detach() if settings.one_sided_pull else codes.shared for codes in aligned[1:]]
    return sum(((aligned[0].shared - one).square().sum(1).mean() for one in theirs), torch.zeros(())) / width


def _fit(party: int, both: Sequence[tuple[Codes, Codes]], settings: Settings) -> Tensor:
    """Return how far a party's aligned codes lie from what the other parties' codes make of them."""
    if settings.self_mask and len(both[party][0].shared) == 1:
        return torch.zeros(())  # the only key is the answer
    guesses = [
        estimate(both[other][0], both[other], both[party], settings, are_aligned=True)
        for other in range(len(both))
        if other != party
    ]
    truth = both[party][0].whole
    width = truth.shape[1] if settings.pair_reduction == "mean" else 1
    return (_averaged(guesses).whole - truth).square().sum(1).mean() / width


def _averaged(guesses: Sequence[Codes]) -> Codes:
    return Codes(
        torch.stack([one.shared for one in guesses]).mean(0), torch.stack([one.unique for one in guesses]).mean(0)
    )


def _head_outputs(networks: Networks, views: Sequence[Codes]) -> list[Tensor]:
    return [head(view.whole) for head, view in zip(networks.heads, views, strict=True)]


def _joint_output(networks: Networks, views: Sequence[Codes]) -> Tensor:
    return networks.joint(torch.cat([view.whole for view in views], dim=1))
