"""What FedCVT learns, where codes of all parties are known in one place. No session here.

Party 0 is the label holder. A party's codes come by kind, rows shared by all parties first, its own rows after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.methods.fedcvt.memory import Memory
from colonnade.nn import attention_weights, row_losses, seeded_linear
from colonnade.nn.draws import seeded_generator

__all__ = [
    "Codes",
    "Outcome",
    "Step",
    "add_up",
    "agreed_labels",
    "build_heads",
    "estimate_views",
    "objective",
    "orthogonality_loss",
    "outputs_by_situation",
    "party_head",
    "row_weights",
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
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    generator = seeded_generator(seed)
    width = sum(config.width_of(kind) for kind in variant.kinds)
    names = {JOINT: width * parties}
    if variant.has_party_heads:
        names |= {party_head(place): width for place in range(parties)}
    if variant.name in ("mftl", "ftl"):
        names[COMMON] = width
    return nn.ModuleDict({name: seeded_linear(inputs, outputs, generator, dtype) for name, inputs in names.items()})


@dataclass(frozen=True)
class Step:
    """One step of one candidate: its settings and heads, and all parties' codes of the batch."""

    config: FedCVT
    variant: Variant
    task: str
    heads: nn.ModuleDict
    codes: Sequence[Codes]
    shared_rows: int
    memory: Memory | None = None

    @property
    def shared(self) -> list[dict[str, torch.Tensor]]:
        """Return all parties' codes of shared rows."""
        return [_rows_of(one, slice(None, self.shared_rows)) for one in self.codes]

    def estimate(self, source: int, wanted: int, *, of_shared: bool) -> dict[str, torch.Tensor]:
        """Estimate one party's codes from another's: of that party's own rows, or of the shared ones."""
        return estimate_views(
            self.config,
            self.codes[source],
            self.codes[wanted],
            self.shared_rows,
            of_shared=of_shared,
            memory=self.memory,
            places=(source, wanted),
        )


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


def objective(step: Step, targets: torch.Tensor, own_targets: torch.Tensor, *, labels_partners: bool = True) -> Outcome:
    """Return a step's loss but for the feature holders' orthogonality, which they add themselves.

    ``targets`` are of the shared rows, ``own_targets`` of the label holder's. ``labels_partners`` says whether rows of
    feature holders may get labels yet.
    """
    variant = step.variant
    if variant.name in ("mftl", "ftl"):
        return _transfer_objective(step, targets, own_targets)
    if variant.name == "mean_fill":
        return _mean_fill_objective(step, targets, own_targets)
    if not variant.uses_own_rows:
        return _finish(step, [step.shared], [targets], [False], Outcome(targets))
    return _cross_view(step, targets, own_targets, labels_partners)


def _cross_view(step: Step, targets: torch.Tensor, own_targets: torch.Tensor, labels_partners: bool) -> Outcome:
    """Complete the views of all unmatched rows, give labels to those of feature holders, and learn from all."""
    config, codes = step.config, step.codes
    views: list[list[Codes]] = [[*step.shared]]
    wanted, estimated = [targets], [False]
    outcome = Outcome(targets)
    for place, one in enumerate(codes):
        own = _rows_of(one, slice(step.shared_rows, None))
        if not len(next(iter(own.values()))):
            if place:
                outcome.kept.append(torch.zeros(0, dtype=torch.bool))
                outcome.labels.append(own_targets[:0])
            continue
        full: list[Codes] = [
            own if other == place else step.estimate(place, other, of_shared=False) for other in range(len(codes))
        ]
        if place == 0:
            views.append(full)
            wanted.append(own_targets)
        else:
            kept, labels = agreed_labels(config, step.task, _all_outputs(step.heads, full))
            outcome.labels.append(labels[kept])
            kept = kept & (labels_partners and config.pseudo_labels)
            outcome.kept.append(kept)
            views.append([{kind: values[kept] for kind, values in view.items()} for view in full])
            wanted.append(labels[kept].to(targets.dtype))
        estimated.append(True)
    return _finish(step, views, wanted, estimated, outcome)


def _finish(
    step: Step,
    views: Sequence[Sequence[Codes]],
    wanted: Sequence[torch.Tensor],
    estimated: Sequence[bool],
    outcome: Outcome,
) -> Outcome:
    """Add up the losses of all heads over all rows, and what ties codes together."""
    targets = torch.cat(list(wanted))
    joined = [
        {kind: torch.cat([view[place][kind] for view in views]) for kind in views[0][place]}
        for place in range(len(step.codes))
    ]
    weights = row_weights(step.config, wanted, estimated)
    losses = {JOINT: (weights * row_losses(step.task, _joint(step.heads, joined), targets)).mean()}
    if step.variant.has_party_heads:
        for place, view in enumerate(joined):
            each = row_losses(step.task, step.heads[party_head(place)](_side_by_side(view)), targets)
            losses[party_head(place)] = (weights * each).mean() if place else each.mean()
    if step.variant.name == "fedcvt":
        losses |= _ties(step)
    return add_up(outcome, losses)


def row_weights(config: FedCVT, wanted: Sequence[torch.Tensor], estimated: Sequence[bool]) -> torch.Tensor:
    """Return what every row counts, where some groups of rows have an estimated view."""
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    counts = [config.estimated_weight if guessed else 1.0 for guessed in estimated]
    return torch.cat([torch.full((len(one),), count, dtype=dtype) for one, count in zip(wanted, counts, strict=True)])


def add_up(outcome: Outcome, losses: Mapping[str, torch.Tensor]) -> Outcome:
    """Put the terms of a loss and their sum into an outcome."""
    outcome.total = torch.stack(list(losses.values())).sum()
    outcome.terms = {name: loss.detach() for name, loss in losses.items()}
    return outcome


def _ties(step: Step) -> dict[str, torch.Tensor]:
    """Return the weighted terms beside the supervised ones, those of the feature holders' orthogonality left out."""
    config, codes, shared = step.config, step.codes, step.shared
    found = {}
    if config.pull and "shared" in step.variant.kinds:
        gaps = [_distance(config, shared[0]["shared"], one["shared"]) for one in shared[1:]]
        found["pull"] = config.pull * torch.stack(gaps).sum()
    # A single shared row has no other to be estimated from.
    if config.estimate and (step.shared_rows > 1 or not config.self_mask):
        for place, weight in enumerate([config.own_fit, *[config.partner_fit] * (len(codes) - 1)]):
            if weight:
                others = [other for other in range(len(codes)) if other != place]
                guesses = [_side_by_side(step.estimate(other, place, of_shared=True)) for other in others]
                missed = _distance(config, torch.stack(guesses).mean(dim=0), _side_by_side(shared[place]))
                found[f"fit {place}"] = weight * missed
    if config.own_orthogonality and len(step.variant.kinds) == 2:
        own = orthogonality_loss(config.orthogonality, codes[0]["shared"], codes[0]["unique"])
        found["orthogonality"] = config.own_orthogonality * own
    return found


def _mean_fill_objective(step: Step, targets: torch.Tensor, own_targets: torch.Tensor) -> Outcome:
    """Return the loss where missing columns are at their mean: a feature holder's only own row is that mean."""
    own, *others = step.codes
    count = step.shared_rows
    own_rows = len(own[step.variant.kinds[0]]) - count
    filled: list[Codes] = [
        {kind: torch.cat([values[:count], values[count:].expand(own_rows, -1)]) for kind, values in one.items()}
        for one in others
    ]
    each = row_losses(step.task, _joint(step.heads, [own, *filled]), torch.cat([targets, own_targets]))
    return add_up(Outcome(targets), {JOINT: each.mean()})


def _transfer_objective(step: Step, targets: torch.Tensor, own_targets: torch.Tensor) -> Outcome:
    """Return the loss of multi-party FTL: one space, one common head, shared codes drawn together."""
    own, *others = [one["shared"] for one in step.codes]
    task, common, count = step.task, step.heads[COMMON], step.shared_rows
    losses = {COMMON: row_losses(task, common(own), torch.cat([targets, own_targets])).mean()}
    for place, one in enumerate(others, start=1):
        losses[f"{COMMON} {place}"] = row_losses(task, common(one[:count]), targets).mean()
        losses[f"alignment {place}"] = _ALIGNMENT * _distance(step.config, own[:count], one[:count])
    losses[JOINT] = row_losses(task, _joint(step.heads, step.shared), targets).mean()
    return add_up(Outcome(targets), losses)


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
