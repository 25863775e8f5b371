"""Score rows with a trained model. Parties with nothing but sensitive columns have no part in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.methods.fairvfl.aggregator import Fusion, send_in_use
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.inputs import TextCoder, coder_from_json
from colonnade.methods.fairvfl.messages import Amounts, Offer, TaskScores, UnifiedCode
from colonnade.methods.fairvfl.networks import build_local, build_task, dtype_of
from colonnade.methods.fairvfl.sides import Places, chunks, send_codes
from colonnade.methods.fairvfl.tasks import CandidateReader, check_places, label_encoder_of, ranked
from colonnade.methods.fairvfl.train import ranking_scores, told_amounts
from colonnade.nn import tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Channel, Holding, ModelPart, Result, Session

__all__ = [
    "aggregator",
    "attribute_holder",
    "feature_holder",
    "label_holder",
    "open_fusion",
    "receive_scores",
    "send_own_codes",
]


def feature_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party that brings columns of new rows."""
    rows = np.arange(len(holding.aligned))
    send_own_codes(session, holding, config, rows)
    return Result()


def attribute_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party that is not asked for."""
    return Result()


def label_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party that learns the scores."""
    part = own_part(session, holding)
    rows = np.arange(len(holding.aligned))
    outputs = int(part.document["outputs"])
    session.channel(AGGREGATOR).send(Amounts(0, 0, len(rows), outputs))
    send_own_codes(session, holding, config, rows)
    logits = receive_scores(session, holding, config, part, rows)
    if config.task == "ranking":
        return Result(scores=ranking_scores(logits, rows, None))
    labels = label_encoder_of(part.document)
    values = scores_of(labels.task, logits.double().numpy()) if len(rows) else np.empty(0)
    return Result(scores=scores_in_terms_of(labels, values, rows))


def aggregator(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party without rows."""
    part = own_part(session, holding)
    amounts = told_amounts(session)
    fusion, task = open_fusion(session, config, part)
    for rows in chunks(amounts.test):
        clear, noised = fusion.codes_in_use(rows.stop - rows.start)
        send_in_use(session.channel("label_holder"), UnifiedCode, task, clear, noised)
    return Result()


def send_own_codes(session: Session, holding: Holding, config: FairVFL, rows: Places) -> None:
    """Say of which model this party has a part, and send the codes of rows if it has columns."""
    part, channel = own_part(session, holding), session.channel(AGGREGATOR)
    coder = coder_from_json(part.document["coder"]) if "coder" in part.document else None
    channel.send(Offer(coder is not None, (), part.document["model"]))
    if coder is None:
        return
    module = build_local(config, session.party, coder, 0)
    module.load_state_dict(tensors_under("local.", part.tensors))
    inputs = coder.transform(holding.table, holding.aligned.positions)
    send_codes(channel, module, inputs, rows)


def receive_scores(
    session: Session, holding: Holding, config: FairVFL, part: ModelPart, rows: Places, codes: list[Any] | None = None
) -> torch.Tensor:
    """Return the scores of rows from what the aggregator sends; ``codes`` takes that too."""
    outputs = int(part.document["outputs"])
    is_elsewhere = config.task_cut == "server"
    message: type[TaskScores | UnifiedCode] = TaskScores if is_elsewhere else UnifiedCode
    width = outputs if is_elsewhere else config.unified_width
    network: nn.Module | None = None
    places, texts = None, None
    if config.task == "ranking":
        coder = TextCoder.from_json(part.document["candidates"])
        inputs = coder.transform(holding.table, holding.aligned.positions)
        places, texts = inputs.by_row[0], inputs.texts
        check_places(holding.table, coder, holding.aligned.positions, places)
        network = CandidateReader(config, part.document["reader"], coder, 0)
    elif not is_elsewhere:
        network = build_task(config, outputs, 0)
    if network is not None:
        network.load_state_dict(tensors_under("task.", part.tensors))
        network.eval()
    found = []
    with torch.no_grad():
        for some in chunks(len(rows)):
            received = session.channel(AGGREGATOR).receive(message, rows=some.stop - some.start, width=width)
            code = received.values.to(dtype_of(config))
            if codes is not None:
                codes.append(code)
            if network is None:
                found.append(code)
            elif places is not None and texts is not None:
                found.append(ranked(network, code, texts, places[torch.from_numpy(rows[some])]))
            else:
                found.append(network(code))
    return torch.cat(found) if found else torch.empty(0, outputs)


def open_fusion(session: Session, config: FairVFL, part: ModelPart) -> tuple[Fusion, nn.Module | None]:
    """Return the trained network over the codes of those who are there, and the task's model if it is here."""
    known: dict[str, Channel] = {}
    for channel in session.all_channels:
        told = channel.receive(Offer, sensitive=config.attributes)
        if told.model != part.document["model"]:
            raise ConfigError(
                f"'{channel.peer}' has a part of another model than '{session.party}'. Use the run folders of one "
                "training at all parties."
            )
        if told.has_columns:
            known[channel.peer] = channel
    wanted = part.document["coders"]
    if sorted(known) != sorted(wanted):
        raise WrongContent(f"This model needs the codes of {', '.join(wanted)}; those of {', '.join(known)} came.")
    fusion = Fusion(config, [known[party] for party in wanted], 0, bytes.fromhex(part.document["serving_key"]))
    fusion.network.load_state_dict(tensors_under("learned/aggregator.", part.tensors))
    if config.task_cut != "server":
        return fusion, None
    task = build_task(config, int(part.document["outputs"]), 0)
    task.load_state_dict(tensors_under("learned/task.", part.tensors))
    return fusion, task
