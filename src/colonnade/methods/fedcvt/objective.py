"""What FedCVT learns, where codes of all parties are known in one place. No session here.

Party 0 is the label holder. A party's codes come by kind, rows shared by all parties first, its own rows after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.methods.fedcvt.memory import Memory
from colonnade.nn import attention_weights

__all__ = [
    "Codes",
    "Outcome",
    "agreed_labels",
    "build_heads",
    "estimate_views",
    "objective",
    "orthogonality_loss",
    "outputs_by_situation",
    "party_head",
    "row_losses",
]

Codes = Mapping[str, torch.Tensor]
"""One party's codes of rows, by kind."""

JOINT, COMMON = "joint", "common"
_ALIGNMENT = 0.1


def party_head(place: int) -> str:
    """Return the name of one party's own head."""
    return f"party{place}"


def build_heads(config: FedCVT, variant: Variant, parties: int, outputs: int, seed: int) -> nn.ModuleDict:
    """Return the linear heads of a candidate, over all parties' codes and over each one's."""
    from colonnade.nn import seeded_linear

    dtype = torch.float64 if config.precision == "float64" else torch.float32
    generator = torch.Generator().manual_seed(seed)
    width = sum(config.width_of(kind) for kind in variant.kinds)
    names = {JOINT: width * parties}
    if variant.has_party_heads:
        names |= {party_head(place): width for place in range(parties)}
    if variant.name in ("mftl", "ftl"):
        names[COMMON] = width
    return nn.ModuleDict({name: seeded_linear(inputs, outputs, generator, dtype) for name, inputs in names.items()})


@dataclass
class Outcome:
    """The loss of one step, its terms, and what was done with rows of feature holders."""

    total: torch.Tensor
    terms: dict[str, torch.Tensor] = field(default_factory=dict)
    """Heads by name, and the terms beside them, each as it counts in the total."""
    kept: list[torch.Tensor] = field(default_factory=list)
    """By feature holder: which of its own rows got a label."""
    labels: list[torch.Tensor] = field(default_factory=list)
    """By feature holder: the labels on which classifiers agree, whether or not they are used."""


def row_losses(task: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of every row: logistic, softmax cross-entropy or squared error."""
    if task == "multiclass":
        return functional.cross_entropy(outputs, targets, reduction="none")
    if task == "regression":
        return (outputs.squeeze(1) - targets) ** 2
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")


def orthogonality_loss(form: str, shared: torch.Tensor, unique: torch.Tensor) -> torch.Tensor:
    """Return how far a party's two codes of the same rows are from being orthogonal.

    The form with outer products, ``||u||^2 ||c||^2``, is not offered: it only shrinks norms.
    """
    rows = max(len(shared), 1)
    if form == "inner":
        return (shared * unique).sum(dim=1).square().sum() / rows
    if form == "gram":
        # torch gives this norm the slope zero where it is zero.
        norm: torch.Tensor = torch.linalg.matrix_norm(unique @ shared.T)
        return norm / rows
    return (unique.T @ shared).square().sum() / rows


def estimate_views(
    config: FedCVT,
    source: Codes,
    wanted: Codes,
    shared_rows: int,
    *,
    of_shared: bool,
    memory: Memory | None = None,
    places: tuple[int, int] = (0, 0),
) -> dict[str, torch.Tensor]:
    """Estimate one party's codes of rows from another's: of the source's own rows, or of the shared ones.

    A shared row must not look at itself, or attention would copy the answer.
    """
    rows = slice(None, shared_rows) if of_shared else slice(shared_rows, None)
    found = {}
    for kind in source:
        is_within = kind == "unique" or config.is_anchored
        keys, values = (source[kind][:shared_rows], wanted[kind][:shared_rows]) if is_within else (wanted[kind],) * 2
        hidden = None
        if of_shared and config.self_mask:
            hidden = torch.zeros(shared_rows, len(keys), dtype=torch.bool)
            hidden.fill_diagonal_(True)
        if memory is not None:
            keys, values, hidden = memory.extend(kind, is_within, places, keys, values, hidden)
        weights = attention_weights(source[kind][rows], keys, config.temperature, hidden=hidden)
        found[kind] = (weights.detach() if config.is_detached else weights) @ values
    return found


def agreed_labels(config: FedCVT, task: str, outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for which rows all classifiers agree and are sure, and the label they agree on, of every row."""
    with torch.no_grad():
        if task == "regression":
            stacked = torch.stack([one.squeeze(1) for one in outputs])
            kept = (stacked.max(dim=0).values - stacked.min(dim=0).values) < config.agreement
            return kept, stacked.mean(dim=0)
        if task == "binary":
            chances = torch.stack([one.squeeze(1).sigmoid() for one in outputs])
            sure, guesses = torch.maximum(chances, 1.0 - chances), (chances > 0.5).to(chances.dtype)
        else:
            sure, guesses = torch.stack([one.softmax(dim=1) for one in outputs]).max(dim=2)
        kept = (guesses == guesses[0]).all(dim=0) & (sure.min(dim=0).values > config.threshold)
        return kept, guesses[0]


def objective(
    config: FedCVT,
    variant: Variant,
    task: str,
    heads: nn.ModuleDict,
    codes: Sequence[Codes],
    shared_rows: int,
    targets: torch.Tensor,
    own_targets: torch.Tensor,
    *,
    labels_partners: bool = True,
    memory: Memory | None = None,
) -> Outcome:
    """Return a step's loss but for the feature holders' orthogonality, which they add themselves.

    ``targets`` are of the shared rows, ``own_targets`` of the label holder's. ``labels_partners`` says whether rows of
    feature holders may get labels yet.
    """
    if variant.name in ("mftl", "ftl"):
        return _transfer_objective(config, task, heads, codes, shared_rows, targets, own_targets)
    if variant.name == "mean_fill":
        # A feature holder's only own row is the mean of its columns.
        own_rows = len(codes[0][variant.kinds[0]]) - shared_rows
        filled = [
            {kind: torch.cat([one[kind][:shared_rows], one[kind][shared_rows:].expand(own_rows, -1)]) for kind in one}
            for one in codes[1:]
        ]
        loss = row_losses(task, _joint(heads, [codes[0], *filled]), torch.cat([targets, own_targets])).mean()
        return Outcome(loss, {JOINT: loss.detach()})
    if not variant.uses_own_rows:
        shared = [_rows_of(one, slice(None, shared_rows)) for one in codes]
        return _finish(config, variant, task, heads, codes, shared_rows, [shared], [targets], [False], Outcome(targets))
    return _cross_view(config, variant, task, heads, codes, shared_rows, targets, own_targets, labels_partners, memory)


def _cross_view(
    config: FedCVT,
    variant: Variant,
    task: str,
    heads: nn.ModuleDict,
    codes: Sequence[Codes],
    shared_rows: int,
    targets: torch.Tensor,
    own_targets: torch.Tensor,
    labels_partners: bool,
    memory: Memory | None,
) -> Outcome:
    views = [[_rows_of(one, slice(None, shared_rows)) for one in codes]]
    wanted, estimated = [targets], [False]
    outcome = Outcome(targets)
    for place, one in enumerate(codes):
        own = _rows_of(one, slice(shared_rows, None))
        if not len(next(iter(own.values()))):
            if place:
                outcome.kept.append(torch.zeros(0, dtype=torch.bool))
                outcome.labels.append(own_targets[:0])
            continue
        full = [
            own
            if other == place
            else estimate_views(
                config, one, codes[other], shared_rows, of_shared=False, memory=memory, places=(place, other)
            )
            for other in range(len(codes))
        ]
        if place == 0:
            views.append(full)
            wanted.append(own_targets)
        else:
            kept, labels = agreed_labels(config, task, _all_outputs(heads, full))
            outcome.labels.append(labels[kept])
            kept = kept & (labels_partners and config.pseudo_labels)
            outcome.kept.append(kept)
            views.append([{kind: values[kept] for kind, values in view.items()} for view in full])
            wanted.append(labels[kept].to(targets.dtype))
        estimated.append(True)
    return _finish(config, variant, task, heads, codes, shared_rows, views, wanted, estimated, outcome, memory=memory)


def _finish(
    config: FedCVT,
    variant: Variant,
    task: str,
    heads: nn.ModuleDict,
    codes: Sequence[Codes],
    shared_rows: int,
    views: Sequence[Sequence[Codes]],
    wanted: Sequence[torch.Tensor],
    estimated: Sequence[bool],
    outcome: Outcome,
    *,
    memory: Memory | None = None,
) -> Outcome:
    """Add up the losses of all heads over all rows, and what ties codes together."""
    targets = torch.cat(list(wanted))
    joined = [
        {kind: torch.cat([view[place][kind] for view in views]) for kind in views[0][place]}
        for place in range(len(codes))
    ]
    weights = torch.cat(
        [
            torch.full(
                (len(one),), config.estimated_weight if guessed else 1.0, dtype=joined[0][variant.kinds[0]].dtype
            )
            for one, guessed in zip(wanted, estimated, strict=True)
        ]
    )
    losses = {JOINT: (weights * row_losses(task, _joint(heads, joined), targets)).mean()}
    if variant.has_party_heads:
        for place, view in enumerate(joined):
            each = row_losses(task, heads[party_head(place)](_side_by_side(view)), targets)
            losses[party_head(place)] = (weights * each).mean() if place else each.mean()
    if variant.name == "fedcvt":
        losses |= _ties(config, variant, codes, shared_rows, memory)
    outcome.total = torch.stack(list(losses.values())).sum()
    outcome.terms = {name: loss.detach() for name, loss in losses.items()}
    return outcome


def _ties(
    config: FedCVT, variant: Variant, codes: Sequence[Codes], shared_rows: int, memory: Memory | None
) -> dict[str, torch.Tensor]:
    """Return the weighted terms beside the supervised ones, those of the feature holders' orthogonality left out."""
    found = {}
    shared = [_rows_of(one, slice(None, shared_rows)) for one in codes]
    if config.pull and "shared" in variant.kinds:
        gaps = [_distance(config, shared[0]["shared"], one["shared"]) for one in shared[1:]]
        found["pull"] = config.pull * torch.stack(gaps).sum()
    # A single shared row has no other to be estimated from.
    if config.estimate and (shared_rows > 1 or not config.self_mask):
        for place, weight in enumerate([config.own_fit, *[config.partner_fit] * (len(codes) - 1)]):
            if weight:
                guesses = [
                    estimate_views(
                        config, one, codes[place], shared_rows, of_shared=True, memory=memory, places=(other, place)
                    )
                    for other, one in enumerate(codes)
                    if other != place
                ]
                mean = torch.stack([_side_by_side(one) for one in guesses]).mean(dim=0)
                found[f"fit {place}"] = weight * _distance(config, mean, _side_by_side(shared[place]))
    if config.own_orthogonality and len(variant.kinds) == 2:
        own = orthogonality_loss(config.orthogonality, codes[0]["shared"], codes[0]["unique"])
        found["orthogonality"] = config.own_orthogonality * own
    return found


def _transfer_objective(
    config: FedCVT,
    task: str,
    heads: nn.ModuleDict,
    codes: Sequence[Codes],
    shared_rows: int,
    targets: torch.Tensor,
    own_targets: torch.Tensor,
) -> Outcome:
    """Return the loss of multi-party FTL: one space, one common head, shared codes drawn together."""
    own, *others = [one["shared"] for one in codes]
    common = heads[COMMON]
    losses = {COMMON: row_losses(task, common(own), torch.cat([targets, own_targets])).mean()}
    for place, one in enumerate(others, start=1):
        losses[f"{COMMON} {place}"] = row_losses(task, common(one[:shared_rows]), targets).mean()
        losses[f"alignment {place}"] = _ALIGNMENT * _distance(config, own[:shared_rows], one[:shared_rows])
    joint = _joint(heads, [_rows_of(one, slice(None, shared_rows)) for one in codes])
    losses[JOINT] = row_losses(task, joint, targets).mean()
    return Outcome(torch.stack(list(losses.values())).sum(), {name: loss.detach() for name, loss in losses.items()})


def outputs_by_situation(
    config: FedCVT,
    variant: Variant,
    heads: nn.ModuleDict,
    situation: str,
    codes: Mapping[int, Codes],
    anchors: Sequence[Codes],
    *,
    every_head: bool = False,
) -> dict[str, torch.Tensor]:
    """Return what each way to score rows gives: rows known to all, or to the one party whose codes are given.

    ``anchors`` are all parties' codes of shared training rows, by which missing views are estimated. ``every_head``
    adds heads that see estimates only: no way to score, but all must agree where rows get labels.
    """
    if situation == "shared":
        views = [codes[place] for place in range(len(anchors))]
        if variant.name == "ftl":
            partners = [heads[COMMON](view["shared"]) for view in views[1:]]
            return {variant.name: torch.stack(partners).mean(dim=0)}
        return {variant.name: _joint(heads, views)}
    ((place, own),) = codes.items()
    if variant.name in ("mftl", "ftl"):
        return {variant.name: heads[COMMON](own["shared"])}
    if variant.name != "fedcvt":
        return {}
    found = {}
    if config.estimate:
        count = len(next(iter(anchors[place].values())))
        known = {kind: torch.cat([anchors[place][kind], own[kind]]) for kind in own}
        full = [
            own if other == place else estimate_views(config, known, anchors[other], count, of_shared=False)
            for other in range(len(anchors))
        ]
        found[variant.name] = _joint(heads, full)
        if every_head:
            return {str(number): one for number, one in enumerate(_all_outputs(heads, full))}
    if variant.has_party_heads:
        found[f"{variant.name}, its own head"] = heads[party_head(place)](_side_by_side(own))
    return found


def _all_outputs(heads: nn.ModuleDict, views: Sequence[Codes]) -> list[torch.Tensor]:
    found = [_joint(heads, views)]
    found += [
        heads[party_head(place)](_side_by_side(view)) for place, view in enumerate(views) if party_head(place) in heads
    ]
    return found


def _joint(heads: nn.ModuleDict, views: Sequence[Codes]) -> torch.Tensor:
    found: torch.Tensor = heads[JOINT](torch.cat([_side_by_side(view) for view in views], dim=1))
    return found


def _side_by_side(view: Codes) -> torch.Tensor:
    return torch.cat(list(view.values()), dim=1)


def _rows_of(codes: Codes, rows: slice) -> dict[str, torch.Tensor]:
    return {kind: values[rows] for kind, values in codes.items()}


def _distance(config: FedCVT, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    squares = (one - other).square()
    per_row = squares.mean(dim=1) if config.pair_reduction == "mean" else squares.sum(dim=1)
    return per_row.mean()
