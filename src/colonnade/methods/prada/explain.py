"""Show a target what each group and each of its own columns adds to the score of each row.

The scoring layer is linear, so that SHAP values are exact: a weight times how far the number lies from its mean. Of the
groups neither side knows the weights: the layer is taken once more, with scores for each group, and these are opened to
the target behind its own mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import FixedPoint, Format
from colonnade.errors import LeakRefused
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner
from colonnade.methods.prada.choice import LOCAL
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.head import (
    BankHead,
    ClearBankHead,
    SealedBankHead,
    SealedHolderHead,
    chunks,
    head_format,
    rounded,
)
from colonnade.methods.prada.messages import LEVELS, GroupLevels, MaskedContributions, OpenedContributions
from colonnade.methods.prada.predict import HolderScorer, TargetScorer
from colonnade.session import Channel, Figure, Finding, Holding, Pair, Result, Session

__all__ = ["feature_holder", "source", "target"]

Numbers = npt.NDArray[np.float64]
Integers = np.ndarray[Any, Any]

# A difference of two of the groups' numbers may be twice as large as one of them.
_DIFFERENCES = Format(fraction_bits=16, magnitude_bits=5)
_MOST_ROWS, _SHOWN, _BARS = 2000, 300, 20


def feature_holder(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the party that brings the groups."""
    _check(session, config)
    scorer = HolderScorer(session, holding, config)
    for peer in session.channels("target"):
        if scorer.chosen(peer.peer) == LOCAL:
            continue
        pair = holding.pair(peer.peer)
        # Rounded first, so that differences are exact.
        values = rounded(scorer.values(peer.peer, pair.aligned.positions[_explained(pair)])).decode()
        training = scorer.values(peer.peer, pair.aligned.positions[pair.split.train])
        mean = rounded(training.mean(axis=0, keepdims=True)).decode()
        head = scorer.head(peer)
        with peer.openings.at("mean"):
            head.score(mean)
        if isinstance(head, SealedHolderHead):
            _open_contributions(peer, head, config, scorer, values - mean)
        else:
            head.score(values)
        # Of groups only: a level of a new category would be the category.
        groups = values[:, : len(scorer.names) * config.aggregate].reshape(len(values), len(scorer.names), -1)
        peer.send(GroupLevels(_levels(groups.sum(axis=2))))
        session.ledger.mark("explained", partner=peer.peer, rows=len(values), groups=len(scorer.names))
    return Result()


def target(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the party that gets the explanation."""
    _check(session, config)
    scorer = TargetScorer(session, holding, config)
    pair = holding.pair(scorer.peer.peer)
    places = _explained(pair)
    if scorer.chosen == LOCAL:
        # A model of this party's own columns alone: there is nothing to ask for.
        none = np.zeros((len(places), 0, scorer.scores))
        levels = np.zeros((len(places), 0), np.int64)
        return Result(findings=(_finding(scorer, pair, places, np.zeros(scorer.scores), none, levels),))
    head = scorer.head()
    if isinstance(head, ClearBankHead):
        mean, values = head.receive_rows(1), head.receive_rows(len(places))
        base, wide = mean @ head.weights, _spread(head.weights, _groups_of(config, len(scorer.groups), scorer.new))
        parts = ((values - mean) @ wide).reshape(len(places), -1, scorer.scores)
    else:
        base = head.score(1)
        parts = _ask_for_contributions(scorer, head, config, len(places))
    levels = scorer.peer.receive(GroupLevels, rows=len(places), groups=parts.shape[1]).levels
    return Result(findings=(_finding(scorer, pair, places, base, parts, levels),))


def source(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play a party that has nothing to do here."""
    return Result()


def _check(session: Session, config: PrADA) -> None:
    if not config.explanations:
        raise LeakRefused(
            "Explanations show the target what each group adds to each row's score, which is more than the score. With "
            "explanations = true all parties accept that."
        )
    session.ledger.mark("override", guard="explanations")


def _explained(pair: Pair) -> npt.NDArray[np.int64]:
    """Return the places of rows that are explained: the held-out ones, or all where none are held out."""
    held = pair.split.test if len(pair.split.test) else np.arange(len(pair.aligned))
    return held[:_MOST_ROWS]


def _wide_format(config: PrADA, inputs: int, outputs: int) -> LinearFormat:
    plain = head_format(config, inputs, outputs)
    return LinearFormat(
        inputs=inputs,
        outputs=outputs,
        most_rows=plain.most_rows,
        key_bits=plain.key_bits,
        input_format=_DIFFERENCES,
        step_format=plain.step_format,
        weight_magnitude_bits=plain.weight_magnitude_bits,
    )


def _groups_of(config: PrADA, groups: int, new: Sequence[int]) -> list[int]:
    """Return the group that each input of the layer counts to: new categories count to the group of their column."""
    return [group for group in range(groups) for _ in range(config.aggregate)] + list(new)


def _spread(share: Integers, groups: Sequence[int]) -> Integers:
    """Give every group scores of its own: the share of its weights there, and zeros elsewhere."""
    inputs, scores = share.shape
    wide = np.zeros((inputs, (max(groups) + 1) * scores), dtype=share.dtype)
    for place, group in enumerate(groups):
        wide[place, group * scores : (group + 1) * scores] = share[place]
    return wide


def _open_contributions(
    peer: Channel, head: SealedHolderHead, config: PrADA, scorer: HolderScorer, differences: Numbers
) -> None:
    groups, new = len(scorer.names), [one.group for one in scorer.new(peer.peer)]
    format = _wide_format(config, scorer.inputs(peer.peer), groups * scorer.scores(peer.peer))
    if scorer.key is None:
        raise RuntimeError("There is no key.")
    layer = LinearOwner(peer, format, scorer.key)
    layer.share = _spread(head.layer.share, _groups_of(config, groups, new))
    for rows in chunks(len(differences)):
        inputs = FixedPoint.encode(differences[rows], _DIFFERENCES)
        layer.send_inputs(inputs, trains=False)
        with peer.openings.at(f"rows from {rows[0]}"):
            layer.answer(inputs, MaskedContributions, OpenedContributions)


def _ask_for_contributions(scorer: TargetScorer, head: BankHead, config: PrADA, count: int) -> Numbers:
    if not isinstance(head, SealedBankHead):
        raise RuntimeError("This head is in the clear.")
    groups = len(scorer.groups)
    format = _wide_format(config, scorer.inputs, groups * scorer.scores)
    layer = LinearPartner(scorer.peer, format, head.key)
    layer.share = _spread(head.layer.share, _groups_of(config, groups, scorer.new))
    found = [np.empty((0, groups * scorer.scores))]
    for rows in chunks(count):
        batch = layer.receive_inputs(len(rows), trains=False)
        found.append(layer.logits(layer.ask(batch, MaskedContributions), OpenedContributions))
    return np.concatenate(found).reshape(count, groups, -1)


def _levels(values: Numbers) -> npt.NDArray[np.int64]:
    """Return in which fifth of all rows each value lies, column by column."""
    if not len(values):
        return np.zeros(values.shape, np.int64)
    cuts = np.quantile(values, np.arange(1, LEVELS) / LEVELS, axis=0)
    levels: npt.NDArray[np.int64] = np.sum(values[None] > cuts[:, None], axis=0, dtype=np.int64)
    return levels


def _finding(
    scorer: TargetScorer,
    pair: Pair,
    places: npt.NDArray[np.int64],
    base: Numbers,
    parts: Numbers,
    levels: npt.NDArray[np.int64],
) -> Finding:
    means = np.array(scorer.part.document["means"])
    columns = scorer.columns[places]
    own = (columns - means)[:, :, None] * scorer.coefficients[None]
    owners = list(dict.fromkeys(scorer.encoder.column_of))
    by_column = np.zeros((len(places), len(owners), scorer.scores))
    raw = np.zeros((len(places), len(owners)))
    seen: dict[str, int] = {}
    for place, column in enumerate(scorer.encoder.column_of):
        by_column[:, owners.index(column)] += own[:, place]
        # Colours follow a number itself, which comes before its steps, or the place of a category.
        number = seen[column] = seen.get(column, -1) + 1
        is_number = scorer.encoder.types[column] != "categorical"
        raw[:, owners.index(column)] += columns[:, place] * (number == 0 if is_number else number)
    values = np.concatenate([parts, by_column], axis=1)
    start = (base + means @ scorer.coefficients + scorer.intercept).reshape(-1)
    names = (*scorer.groups, *owners)
    colours = np.concatenate([levels, _levels(raw)], axis=1)
    weight = np.abs(values).mean(axis=(0, 2))
    order = np.argsort(-weight, kind="stable")
    top = order[:_BARS]
    rows = tuple(
        (names[place], "group" if place < len(scorer.groups) else "own column", f"{weight[place]:.4f}")
        for place in order
    )
    figures = [
        Figure(
            kind="bars",
            title="Mean size of what each group and column adds to the score",
            values={"names": [names[place] for place in top], "lengths": [float(weight[place]) for place in top]},
        )
    ]
    if scorer.scores == 1:
        shown = slice(0, _SHOWN)
        figures.append(
            Figure(
                kind="beeswarm",
                title="What each group and column adds to the score, row by row",
                values={
                    "names": [names[place] for place in top],
                    "values": [np.round(values[shown, place, 0], 5).tolist() for place in top],
                    "levels": [colours[shown, place].tolist() for place in top],
                },
            )
        )
    return Finding(
        name="explanation",
        title="What moves the score",
        text=f"SHAP values of {len(places)} held-out rows, exact for the linear scoring layer: for every row, those "
        "of all groups and own columns add up, with the base, to its score before the logistic function. Groups lie at "
        "the feature holder; colours are fifths of a group's number.",
        columns=("name", "what it is", "mean absolute value"),
        rows=rows,
        values={
            "names": list(names),
            "base": start.tolist(),
            "rows": pair.aligned.positions[places].tolist(),
            "values": values.squeeze(2).tolist() if scorer.scores == 1 else values.tolist(),
        },
        figures=tuple(figures),
    )
