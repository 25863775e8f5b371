"""Score rows in all three situations: known to all parties, to the label holder only, to a feature holder only.

The label holder gets scores of all its rows. A feature holder gets predictions for rows that only it knows, if it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.answers import decided, described, told
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.fedcvt.config import LOCAL, FedCVT
from colonnade.methods.fedcvt.estimates import receive_logits
from colonnade.methods.fedcvt.messages import MOST_ROWS, AnswersAlone, ModelMark, RowsAlone
from colonnade.methods.fedcvt.networks import build_encoders, dtype_of, scored_codes, split_codes
from colonnade.methods.fedcvt.objective import build_heads, outputs_by_situation
from colonnade.methods.fedcvt.open_cut import ScoredCodeSender, receive_held_out
from colonnade.methods.fedcvt.rows import OwnTable
from colonnade.methods.fedcvt.sealed_cut import SealedKeys, SealedLabelSide, SealedPartnerSide
from colonnade.nn import tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Holding, ModelPart, Result, Scores, Session

__all__ = ["feature_holder", "label_holder"]

_NOTHING = np.empty(0, np.int64)


def feature_holder(session: Session, holding: Holding, config: FedCVT) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    _check_module(session, part, holding)
    if peer.receive(ModelMark).mark != part.document["mark"]:
        raise ConfigError(
            f"'{peer.peer}' has its part of the model from another training than '{session.party}'. Both must use the "
            "run folders of one training."
        )
    keys = SealedKeys.exchange(session, config) if config.is_sealed and config.joint_candidates else None
    scorer = _PartnerScorer(session, holding, config, part, keys)
    chosen = part.document["chosen"]
    if chosen["shared"] != LOCAL:
        scorer.give("shared rows", chosen["shared"], holding.aligned.positions)
    rest = holding.aligned.rest if config.partner_answers != "none" and chosen["alone"] else _NOTHING
    peer.send(RowsAlone(len(rest)))
    if not len(rest):
        return Result()
    scorer.give("other rows", chosen["alone"], rest)
    scorer.estimate(chosen["alone"], rest)
    found = told(peer.receive(AnswersAlone, rows=len(rest)), peer)
    known = (_known_to(session),) * len(rest)
    return Result(
        scores=Scores(
            found.task,
            found.rows,
            found.values,
            classes=found.classes,
            is_decided=True,
            positions=rest,
            known_to=known,
        )
    )


def label_holder(session: Session, holding: Holding, config: FedCVT) -> Result:
    """Play the party that learns the scores."""
    part, peers = own_part(session, holding), session.channels("feature_holder")
    _check_module(session, part, holding)
    for peer in peers:
        peer.send(ModelMark(part.document["mark"]))
    keys = SealedKeys.exchange(session, config) if config.is_sealed and config.joint_candidates and peers else None
    scorer = _LabelScorer(session, holding, config, part, keys)
    positions, rest = holding.aligned.positions, holding.aligned.rest
    if session.party not in part.document["chosen"]:
        # Models of shared rows alone say nothing about others.
        rest = _NOTHING
    outputs = [scorer.shared(positions), scorer.alone(rest)]
    for place, peer in enumerate(peers, start=1):
        answers = config.partner_answers != "none" and peer.peer in part.document["chosen"]
        count = peer.receive(RowsAlone, most_alone=MOST_ROWS if answers else 0).count
        if count == 0:
            continue
        found = scorer.partner_alone(place, peer.peer, count).double().numpy()
        peer.send(AnswersAlone(decided(scorer.labels, found), described(scorer.labels)))
    together = torch.cat(outputs).double().numpy()
    rows = np.concatenate([positions, rest])
    values = scores_of(scorer.labels.task, together) if len(together) else np.empty(0)
    scores = scores_in_terms_of(scorer.labels, values, np.arange(len(rows)))
    known = ("all parties",) * len(positions) + (_known_to(session),) * len(rest)
    return Result(
        scores=Scores(scores.task, scores.rows, scores.values, classes=scores.classes, positions=rows, known_to=known)
    )


class _PartnerScorer:
    """A feature holder with a trained model."""

    def __init__(
        self, session: Session, holding: Holding, config: FedCVT, part: ModelPart, keys: SealedKeys | None
    ) -> None:
        self._session, self._holding, self._config, self._part, self._keys = session, holding, config, part, keys
        self._peer = session.channel("label_holder")
        self._table = _new_rows(holding, config, part)
        self._sides: dict[str, SealedPartnerSide] = {}
        self._sender = ScoredCodeSender(config, self._peer, part.document["noise_key"])

    def give(self, what: str, model: str, rows: Any) -> None:
        """Let the label holder have codes or scores of rows."""
        if self._keys is not None:
            with self._peer.openings.at(what):
                self._side(model).score_rows(rows)
            return
        codes = scored_codes(self._encoders(model), self._table.features[torch.from_numpy(rows)])
        self._sender.send(torch.cat(list(codes.values()), dim=1), model)

    def estimate(self, model: str, rows: Any) -> None:
        """Average what others' codes of anchors add to scores, where codes are encrypted."""
        if self._keys is None:
            return
        side = self._side(model)
        logits = receive_logits(self._peer, self._keys.theirs[self._peer.peer], side.anchor_shape)
        side.estimate(logits, side.codes(rows))

    def _encoders(self, model: str) -> Any:
        variant = self._config.variant(model)
        encoders = build_encoders(
            self._config, variant, self._session.party, self._table.features.shape[1], lambda _: 0, self._holding.module
        )
        encoders.load_state_dict(tensors_under(f"{model}/encoders.", self._part.tensors))
        return encoders

    def _side(self, model: str) -> SealedPartnerSide:
        if model not in self._sides and self._keys is not None:
            side = SealedPartnerSide(
                self._session,
                self._config,
                self._config.variant(model),
                self._table,
                int(self._part.document["outputs"]),
                self._keys,
                self._holding.module,
            )
            side.load_part(tensors_under(f"{model}/", self._part.tensors), self._part.document["parts"][model])
            self._sides[model] = side
        return self._sides[model]


class _LabelScorer:
    """The label holder with a trained model."""

    def __init__(
        self, session: Session, holding: Holding, config: FedCVT, part: ModelPart, keys: SealedKeys | None
    ) -> None:
        self._session, self._holding, self._config, self._part, self._keys = session, holding, config, part, keys
        self.labels = LabelEncoder.from_json(part.document["label_encoder"])
        self._table = _new_rows(holding, config, part)
        self._chosen: Mapping[str, Any] = part.document["chosen"]
        self._parties = part.document["parties"]
        self._peers = session.channels("feature_holder")
        self._sides: dict[str, SealedLabelSide] = {}

    def shared(self, rows: Any) -> torch.Tensor:
        """Return the outputs for rows that all parties know."""
        model, way = self._way("shared")
        if model == LOCAL:
            return self._local(rows)
        if self._keys is not None:
            side = self._side(model)
            with torch.no_grad():
                return side.heads.whole(side.scored_with(side.codes(rows), len(rows)))["joint"]
        width = sum(self._config.width_of(kind) for kind in self._config.variant(model).kinds)
        codes: dict[int, Any] = {0: self._codes(model, rows)}
        for place, peer in enumerate(self._peers, start=1):
            received = receive_held_out(self._config, peer, len(rows), width)
            codes[place] = split_codes(self._config, self._config.variant(model), received)
        return self._open_outputs(model, "shared", codes)[way]

    def alone(self, rows: Any) -> torch.Tensor:
        """Return the outputs for rows that only this party knows; nothing crosses."""
        if not len(rows):
            return torch.zeros(0, int(self._part.document["outputs"]))
        model, way = self._way(self._session.party)
        if model == LOCAL:
            return self._local(rows)
        if self._keys is not None:
            side = self._side(model)
            with torch.no_grad():
                return side.alone(side.codes(rows))[way]
        return self._open_outputs(model, "alone", {0: self._codes(model, rows)})[way]

    def partner_alone(self, place: int, party: str, count: int) -> torch.Tensor:
        """Return the outputs for rows that only one feature holder knows."""
        model, way = self._way(party)
        peer = self._peers[place - 1]
        if self._keys is not None:
            side = self._side(model)
            with torch.no_grad():
                own = side.partner_part(place, count)
                format = side.send_anchors(place)
                return side.partner_alone(place, own, side.receive_estimates(place, format, count))[way]
        variant = self._config.variant(model)
        width = sum(self._config.width_of(kind) for kind in variant.kinds)
        received = split_codes(self._config, variant, receive_held_out(self._config, peer, count, width))
        return self._open_outputs(model, "alone", {place: received})[way]

    def _way(self, situation: str) -> tuple[str, str]:
        return str(self._chosen[situation]["model"]), str(self._chosen[situation]["name"])

    def _codes(self, model: str, rows: Any) -> dict[str, torch.Tensor]:
        variant = self._config.variant(model)
        encoders = build_encoders(
            self._config, variant, self._session.party, self._table.features.shape[1], lambda _: 0, self._holding.module
        )
        encoders.load_state_dict(tensors_under(f"{model}/encoders.", self._part.tensors))
        return scored_codes(encoders, self._table.features[torch.from_numpy(rows)])

    def _heads(self, model: str, parties: int) -> Any:
        outputs = int(self._part.document["outputs"])
        heads = build_heads(self._config, self._config.variant(model), parties, outputs, 0)
        heads.load_state_dict(tensors_under(f"{model}/heads.", self._part.tensors))
        return heads

    def _local(self, rows: Any) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self._heads(LOCAL, 1)["joint"](self._codes(LOCAL, rows)["shared"])
        return found

    def _open_outputs(self, model: str, situation: str, codes: Mapping[int, Any]) -> dict[str, torch.Tensor]:
        kept = tensors_under(f"{model}/anchors.", self._part.tensors)
        kinds = self._config.variant(model).kinds
        anchors = [{kind: kept[f"{place}.{kind}"] for kind in kinds} for place in range(len(self._parties))]
        heads = self._heads(model, len(self._parties))
        with torch.no_grad():
            return outputs_by_situation(self._config, self._config.variant(model), heads, situation, codes, anchors)

    def _side(self, model: str) -> SealedLabelSide:
        if model not in self._sides and self._keys is not None:
            labels = OwnLabels(self.labels, torch.zeros(self._table.features.shape[0]), np.empty(0, dtype=object))
            side = SealedLabelSide(
                self._session,
                self._config,
                self._config.variant(model),
                self._table,
                labels,
                self._keys,
                self._holding.module,
            )
            side.load_part(tensors_under(f"{model}/", self._part.tensors), self._part.document["parts"][model])
            self._sides[model] = side
        return self._sides[model]


def _known_to(session: Session) -> str:
    """Say who knows a row of this party that is not shared by all."""
    return f"{session.party} only" if len(session.plan.parties) == 2 else f"{session.party}, not all parties"


def _new_rows(holding: Holding, config: FedCVT, part: ModelPart) -> OwnTable:
    encoder = TableEncoder.from_json(part.document["table_encoder"])
    rows = np.arange(holding.table.rows)
    features = torch.from_numpy(encoder.transform(holding.table, rows, dtype=np.dtype(config.precision).type))
    return OwnTable(encoder, features.to(dtype_of(config)), *[_NOTHING] * 5)


def _check_module(session: Session, part: ModelPart, holding: Holding) -> None:
    is_custom = part.document["is_custom"]
    if is_custom and holding.module is None:
        raise ConfigError(
            f"The networks of '{session.party}' are a module of your own. Pass it again as "
            f"modules={{'{session.party}': …}} to predict."
        )
    if not is_custom and holding.module is not None:
        raise ConfigError(f"The networks of '{session.party}' were built from the settings. Do not pass a module.")
