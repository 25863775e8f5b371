"""Try what can be read from a trained model's codes, and count what it decides by group: all roles side by side.

Attackers learn from codes of training rows and are judged on held-out ones. The holder of an attribute attacks the code
as the label holder sees it; holders of columns attack protected codes, and the code, for their own columns. What the
model decides is counted by group under encryption: neither side sees the other's rows.

Last, a plain model is trained for comparison, and attacked likewise. A model from which almost as much is read is
refused in prediction.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import ConfigError
from colonnade.exchanges.group_counts import (
    CountFormat,
    count_by_group,
    outcome_columns,
    outcome_margins,
    receive_counts,
    seal_indicators,
    send_indicators,
)
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.methods.fairvfl.aggregator import send_in_use
from colonnade.methods.fairvfl.attacks import (
    Audited,
    attack_attribute,
    checked_codes,
    send_result,
    told_countable,
    told_results,
)
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.findings import (
    attack_finding,
    columns_finding,
    fairness_finding,
    gaps_finding,
    verdict_finding,
)
from colonnade.methods.fairvfl.messages import COUNTED, Amounts, AttackCodes, Countable, CountRequest, UnifiedCode
from colonnade.methods.fairvfl.networks import build_mapper
from colonnade.methods.fairvfl.predict import open_fusion, receive_scores, send_own_codes
from colonnade.methods.fairvfl.sides import Attribute, Places, chunks, own_attributes
from colonnade.methods.fairvfl.tasks import clicks_of, label_encoder_of
from colonnade.methods.fairvfl.train import ROWS_TO_JUDGE, noise_of, told_amounts
from colonnade.methods.fairvfl.variants import play_variant_aggregator, play_variant_holder, play_variant_label_holder
from colonnade.metrics import GroupCounts, Inference, average_inference, measure_inference
from colonnade.nn import attack, tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Finding, Holding, Result, Session

__all__ = ["aggregator", "attribute_holder", "feature_holder", "label_holder"]

# Columns are attacked with fewer rows: there are many of them, and the comparison with chance needs no more.
_ROWS_BY_COLUMN = 4000
_CLASSES_OF_NUMBERS = 4
_MOST_CLASSES = 20
_FIRST_FEW = 5
# What an audit may have otherwise than the training.
_OF_AUDITS = {
    "attackers",
    "audit_plain",
    "audit_rows",
    "checkpoint_every",
    "count_epsilon",
    "key_size",
    "safeguard",
    "smallest_group",
    "sweep",
}


def label_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party whose decisions are counted."""
    audited, part = _begin(session, holding, config), own_part(session, holding)
    if config.is_compared and holding.table.labels is None:
        raise ConfigError(
            "The audit trains a plain model to compare with, and this table has no labels to train it with. Audit with "
            "the table of the training, or set audit_plain = false."
        )
    outputs = int(part.document["outputs"])
    sizes = (len(audited.train), len(audited.validation), len(audited.test))
    session.channel(AGGREGATOR).send(Amounts(*sizes, outputs))
    send_own_codes(session, holding, config, audited.rows)
    logits = receive_scores(session, holding, config, part, audited.rows)
    findings, attacked = _attack(session, holding, config, audited)
    counts: dict[str, dict[str, GroupCounts]] = {}
    scores, test = None, audited.divide(logits.double().numpy())[2]
    if holding.table.labels is None:
        expected = _decline(session, config)
    elif config.task == "ranking":
        clicks = clicks_of(holding.table.labels[holding.aligned.positions][audited.test])
        expected, counts = _count(session, holding, config, audited, _hits(test, clicks), np.ones(len(test), np.int64))
    else:
        labels = label_encoder_of(part.document)
        truth = holding.table.labels[holding.aligned.positions][audited.test]
        values = scores_of(labels.task, test) if len(test) else np.empty(0)
        scores = scores_in_terms_of(labels, values, audited.test, truth)
        if labels.task == "binary" and len(test):
            answers = np.asarray(labels.encode(truth)).astype(np.int64)
            expected, counts = _count(session, holding, config, audited, _decisions(values, answers), answers)
        else:
            expected = _decline(session, config)
    read = told_results(session, config, expected) | attacked
    verdict = verdict_finding(config, read, counts)
    gaps = [gaps_finding(counts, is_ranking=config.task == "ranking")] if counts else []
    if not config.is_compared:
        # Without the safeguard, what an earlier audit said is lifted.
        return Result(scores=scores, findings=(verdict, *gaps, *findings), refusal=None if config.safeguard else "")
    compared = play_variant_label_holder(session, holding, config.plain(), audited, expected, members=config.attackers)
    fairness, refusal = fairness_finding(config, compared.read, read, is_enough=len(audited.test) >= ROWS_TO_JUDGE)
    return Result(scores=scores, findings=(verdict, fairness, *gaps, *findings), refusal=refusal)


def feature_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party with columns, which tries what protected codes tell about them."""
    return _holder(session, holding, config)


def attribute_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party with attributes, which tries what the code tells about them."""
    return _holder(session, holding, config)


def aggregator(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party that hands out codes to attack."""
    _check_settings(session, holding, config)
    part, amounts = own_part(session, holding), told_amounts(session)
    fusion, task = open_fusion(session, config, part)
    mappers = {}
    for attribute in part.document["attributes"]:
        mappers[attribute] = build_mapper(config, attribute, 0).eval()
        mappers[attribute].load_state_dict(tensors_under(f"mapper/{attribute}/mapper.", part.tensors))
    label_holder = session.channel("label_holder")
    seen, protected = [], []
    for number, rows in enumerate(chunks(amounts.train + amounts.validation + amounts.test)):
        clear, noised = fusion.codes_in_use(rows.stop - rows.start)
        send_in_use(label_holder, UnifiedCode, task, clear, noised)
        with torch.no_grad():
            seen.append(noised if task is None else task(clear))
            protected.append([_protected(session, config, one, noised, number) for one in mappers.items()])
    every = torch.cat(seen)
    narrow = tuple(torch.cat(parts) for parts in zip(*protected, strict=True))
    for channel in session.all_channels:
        # Only who has columns is asked what protected codes tell about them.
        own = narrow if channel.peer_role != "attribute_holder" else ()
        channel.send(AttackCodes(every, own))
    if config.is_compared:
        play_variant_aggregator(session, config.plain())
    return Result()


def _begin(session: Session, holding: Holding, config: FairVFL) -> Audited:
    _check_settings(session, holding, config)
    return Audited.of(holding, config)


def _check_settings(session: Session, holding: Holding, config: FairVFL) -> None:
    """Refuse to audit a model as if it had been trained with other settings: with more noise it would look fairer."""
    # The training of a plain model shares no checkpoint with what comes before it: an interrupted audit begins anew.
    session.checkpoints = None
    both = (own_part(session, holding).document["config"], dataclasses.asdict(config))
    # A part that was kept has lists where the settings have tuples.
    trained, now = (json.loads(json.dumps(one)) for one in both)
    others = sorted(name for name, value in now.items() if name not in _OF_AUDITS and trained.get(name) != value)
    if others:
        raise ConfigError(
            f"The model was trained with other settings than those it is to be audited with ({', '.join(others)}). "
            "Restore them, or train again."
        )


def _protected(
    session: Session, config: FairVFL, mapper: tuple[str, torch.nn.Module], codes: torch.Tensor, number: int
) -> torch.Tensor:
    name, network = mapper
    values: torch.Tensor = network(codes)
    drawn = noise_of(session, config).gaussian(f"audit/{name}", number, tuple(values.shape))
    return values + torch.from_numpy(drawn).to(values.dtype) * config.protected_noise


def _holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    audited = _begin(session, holding, config)
    send_own_codes(session, holding, config, audited.rows)
    findings, attacked = _attack(session, holding, config, audited)
    peer = session.channel("label_holder")
    groups = [_groups(one, audited) for one in own_attributes(session, holding, config)]
    peer.send(Countable(tuple(one.name for one in groups), tuple(one.count for one in groups)))
    if peer.receive(CountRequest).is_wanted and groups:
        key = receive_key(session, peer, config.key_size)
        format = _format(config, len(audited.test), key.bits)
        for number, one in enumerate(groups):
            count_by_group(session, peer, key, format, one.places, one.count, counter=number)
    for name, found in attacked.items():
        send_result(peer, name, found)
    if config.is_compared:
        play_variant_holder(session, holding, config.plain(), audited, members=config.attackers)
    return Result(findings=findings)


@dataclass(frozen=True)
class _Groups:
    """Held-out rows by an attribute: its classes, or quarters of its numbers."""

    name: str
    places: Places
    count: int


def _groups(attribute: Attribute, audited: Audited) -> _Groups:
    places = np.where(attribute.is_known, attribute.targets.numpy(), -1)
    if attribute.is_numeric:
        learned = places[audited.train][attribute.is_known[audited.train]]
        edges = np.quantile(learned, np.linspace(0, 1, _CLASSES_OF_NUMBERS + 1)[1:-1])
        places = np.where(attribute.is_known, np.searchsorted(edges, places, side="right"), -1)
        return _Groups(attribute.name, places[audited.test].astype(np.int64), _CLASSES_OF_NUMBERS)
    return _Groups(attribute.name, places[audited.test].astype(np.int64), len(attribute.classes))


def _format(config: FairVFL, rows: int, key_bits: int) -> CountFormat:
    # Decisions at two thresholds, of which each gives a row one of four outcomes.
    return CountFormat(
        rows=rows,
        columns=8,
        key_bits=key_bits,
        smallest_group=config.smallest_group,
        epsilon=config.count_epsilon or None,
        most_ones=2,
    )


def _decisions(scores: npt.NDArray[Any], truth: Places) -> dict[str, npt.NDArray[np.bool_]]:
    """Return what is decided for each row, at two thresholds."""
    base = float(truth.mean()) if len(truth) else 0.5
    return {"at 0.5": scores >= 0.5, "at base rate": scores >= np.quantile(scores, 1.0 - base)}


def _hits(logits: npt.NDArray[Any], clicks: torch.Tensor) -> dict[str, npt.NDArray[np.bool_]]:
    """Return of each row whether a candidate that was chosen is ranked first, and whether among the first few."""
    chosen = np.where(clicks.numpy() > 0, logits[:, : clicks.shape[1]], -np.inf).max(axis=1)
    # Where scores tie, the chosen one comes last: a model that cannot tell candidates apart has found nothing.
    others = np.where(clicks.numpy() == 0, logits[:, : clicks.shape[1]], -np.inf)
    better = (others >= chosen[:, None]).sum(axis=1)
    return {"first": better < 1, f"among the first {_FIRST_FEW}": better < _FIRST_FEW}


def _count(
    session: Session,
    holding: Holding,
    config: FairVFL,
    audited: Audited,
    decided: Mapping[str, npt.NDArray[np.bool_]],
    truth: Places,
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, GroupCounts]]]:
    """Return who has which attributes and, by attribute and kind of decision, how often it is made for each group."""
    columns = np.concatenate([outcome_columns(one.astype(int), truth) for one in decided.values()], axis=1)
    found: dict[str, dict[str, GroupCounts]] = {}
    having: dict[str, tuple[str, ...]] = {}
    peers = [channel for channel in session.all_channels if channel.peer_role in COUNTED]
    key, sealed = None, None
    for peer in peers:
        told = told_countable(peer, config, having)
        having[peer.peer] = told.attributes
        peer.send(CountRequest(True))
        if not told.attributes:
            continue
        if key is None or sealed is None:
            key = make_key(session, config.key_size)
            format = _format(config, len(truth), key.bits)
            sealed = seal_indicators(key, format, columns)
        send_key(peer, key)
        for number, (attribute, groups) in enumerate(zip(told.attributes, told.groups, strict=True)):
            send_indicators(peer, sealed)
            with peer.openings.at(f"attribute {number}"):
                counts = receive_counts(peer, key, format, sealed, groups)
            # Groups that were too small are left out; with fewer than two there is nothing to compare.
            if len(counts.given) > 1:
                found[attribute] = _by_threshold(list(decided), counts.values, bool(config.count_epsilon))
    for one in (_groups(one, audited) for one in own_attributes(session, holding, config)):
        own = np.stack([columns[one.places == group].sum(axis=0) for group in range(one.count)])
        found[one.name] = _by_threshold(list(decided), own, False)
    return having, found


def _by_threshold(names: Sequence[str], values: npt.NDArray[Any], is_noised: bool) -> dict[str, GroupCounts]:
    found = {}
    for place, name in enumerate(names):
        margins = outcome_margins(values[:, 4 * place : 4 * place + 4])
        make = GroupCounts.from_noised if is_noised else GroupCounts
        found[name] = make(*(tuple(column.tolist()) for column in margins.T))
    return found


def _decline(session: Session, config: FairVFL) -> dict[str, tuple[str, ...]]:
    """Say that there is nothing to count; return who has which attributes."""
    having: dict[str, tuple[str, ...]] = {}
    for peer in session.all_channels:
        if peer.peer_role in COUNTED:
            having[peer.peer] = told_countable(peer, config, having).attributes
            peer.send(CountRequest(False))
    return having


def _attack(
    session: Session, holding: Holding, config: FairVFL, audited: Audited
) -> tuple[tuple[Finding, ...], dict[str, Any]]:
    """Attack the code for one's own attributes, and all codes for one's own columns."""
    mappers = 0 if session.role == "attribute_holder" else len(config.removed)
    # Where the task's model is elsewhere, codes are its scores, and holders do not know how many there are of a row.
    channel = session.channel(AGGREGATOR)
    received = channel.receive(AttackCodes, rows=len(audited.rows), width=None, mappers=mappers)
    codes = checked_codes(session, received.unified)
    protected = [checked_codes(session, one) for one in received.protected]
    findings: list[Finding] = []
    attacked: dict[str, Any] = {}
    seed = session.own_seed("attackers")
    for attribute in own_attributes(session, holding, config):
        session.show(f"attacking {attribute.name}", 0, 1)
        attacked[attribute.name] = attack_attribute(attribute, codes, audited, seed, members=config.attackers)
        findings.append(attack_finding(attribute, attacked[attribute.name]))
    columns = [name for name in holding.table.feature_names if name not in config.attributes]
    if protected and columns and session.role != "attribute_holder":
        read = _attack_columns(session, holding, config, audited, columns, [codes, *protected], seed)
        findings.append(columns_finding(config, read))
    return tuple(findings), attacked


def _attack_columns(
    session: Session,
    holding: Holding,
    config: FairVFL,
    audited: Audited,
    columns: Sequence[str],
    codes: Sequence[npt.NDArray[Any]],
    seed: int,
) -> dict[str, list[Inference]]:
    """Return what is read of each own column: from the code, then from each protected code."""
    found: dict[str, list[Inference]] = {}
    for number, name in enumerate(columns):
        session.show("attacking columns", number, len(columns))
        classes = _classes_of(holding, audited, name)
        if classes is None:
            continue
        read = []
        for one in codes:
            parts = []
            for rows, own in zip((audited.train, audited.validation, audited.test), audited.divide(one), strict=True):
                known = classes[rows] >= 0
                parts.append((own[known][:_ROWS_BY_COLUMN], classes[rows][known][:_ROWS_BY_COLUMN]))
            (train, learned), (validation, checked), (test, truth) = parts
            if not (len(learned) and len(checked) and len(truth)):
                break
            members = attack(
                "strong",
                train,
                learned,
                validation,
                checked,
                test,
                classes=int(classes.max()) + 1,
                seed=seed,
                members=min(config.attackers, 2),
                average=True,
            )
            measured = [measure_inference(truth, own.test, checked, own.validation) for own in members]
            read.append(average_inference(measured))
        if read:
            found[name] = read
    return found


def _classes_of(holding: Holding, audited: Audited, name: str) -> npt.NDArray[np.int64] | None:
    """Return a column as classes: its categories, the rarest together, or quarters of its numbers; -1 unknown."""
    values = holding.table.values(name)[holding.aligned.positions]
    if values.dtype != object:
        numbers = np.asarray(values, float)
        known = np.isfinite(numbers)
        learned = numbers[audited.train][known[audited.train]]
        edges = np.unique(np.quantile(learned, np.linspace(0, 1, _CLASSES_OF_NUMBERS + 1)[1:-1]))
        found = np.where(known, np.searchsorted(edges, numbers, side="right"), -1)
    else:
        there, counts = np.unique([one for one in values[audited.train] if one is not None], return_counts=True)
        kept = there[np.argsort(-counts, kind="stable")][: _MOST_CLASSES - 1]
        place = {one: number for number, one in enumerate(kept)}
        found = np.array([-1 if one is None else place.get(one, len(kept)) for one in values])
    # Classes without training rows would have nothing to be learned from.
    present = np.unique(found[audited.train][found[audited.train] >= 0])
    if len(present) < 2:
        return None
    renumbered = np.full(int(found.max()) + 2, -1)
    renumbered[present] = np.arange(len(present))
    return np.asarray(renumbered[found], np.int64)
