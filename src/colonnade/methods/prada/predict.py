"""Score a target's new rows with the feature holder, or by its own columns where that model was chosen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.data import CodeEncoder, LabelEncoder, StepEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.methods.prada.bank import bank_head, cut_off
from colonnade.methods.prada.choice import JOINT, LOCAL, local_weights
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.extractors import Extractors
from colonnade.methods.prada.groups import Columns, NewCategory, build_network, check_structure, group_shapes
from colonnade.methods.prada.head import BankHead, HolderHead
from colonnade.methods.prada.labels import undisguised
from colonnade.methods.prada.messages import HOLDER, ModelMark
from colonnade.methods.prada.school import holder_head
from colonnade.nn import tensors_under
from colonnade.nn.regression import outputs_for, scores_of
from colonnade.privacy import LabelDisguise
from colonnade.session import Channel, Holding, ModelPart, Result, Session

__all__ = ["HolderScorer", "TargetScorer", "feature_holder", "source", "target"]

Numbers = npt.NDArray[np.float64]


def feature_holder(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the party that brings the groups."""
    scorer = HolderScorer(session, holding, config)
    for peer in session.channels("target"):
        if scorer.chosen(peer.peer) != LOCAL:
            scorer.head(peer).score(scorer.values(peer.peer, holding.pair(peer.peer).aligned.positions))
    return Result()


def target(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the party that gets the scores."""
    scorer = TargetScorer(session, holding, config)
    count = len(scorer.columns)
    logits = scorer.own_logits() if scorer.chosen == LOCAL else scorer.logits()
    return Result(scores=scores_in_terms_of(scorer.labels, scorer.predicted(logits), np.arange(count)))


def source(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play a party that has nothing to do here."""
    return Result()


class HolderScorer:
    """The feature holder with a trained model."""

    def __init__(self, session: Session, holding: Holding, config: PrADA) -> None:
        self._part, self._config = own_part(session, holding), config
        self._document = self._part.document
        check_structure(config, self._document["structure"])
        encoder = CodeEncoder.from_json(self._document["code_encoder"])
        groups = {name: tuple(columns) for name, columns in self._document["groups"].items()}
        self.names = tuple(self._document["names"])
        self._new = tuple(NewCategory(*one) for one in self._document["new"][: self._document["weighted"]])
        self._columns = Columns.of(encoder, holding.table, config.precision)
        self._network = build_network(config, encoder, group_shapes(config, encoder, groups), 0)
        self.session = session
        needs_key = any(self.chosen(peer.peer) != LOCAL for peer in session.channels("target"))
        self.key = make_key(session, config.key_size) if config.is_sealed and needs_key else None

    def new(self, party: str) -> tuple[NewCategory, ...]:
        """Return the categories that have a weight of their own in a target's scoring layer."""
        return self._new if self.chosen(party) == JOINT else ()

    def inputs(self, party: str) -> int:
        """Return how many numbers this party gives per row of a target."""
        return len(self.names) * self._config.aggregate + len(self.new(party))

    def chosen(self, party: str) -> str:
        """Return which model a target uses."""
        return str(self._document["chosen"].get(party, JOINT))

    def scores(self, party: str) -> int:
        """Return how many scores a target's rows have."""
        return int(self._document["banks"][party]["scores"])

    def head(self, peer: Channel) -> HolderHead:
        """Return this party's half of a target's scoring layer, after it has told its key."""
        if peer.receive(ModelMark).mark != self._document["banks"][peer.peer]["mark"]:
            raise ConfigError(
                f"'{peer.peer}' has its part of the model from another training than '{self.session.party}'. Both must "
                "use the run folders of one training."
            )
        if self.key is not None:
            send_key(peer, self.key)
        head = holder_head(self._config, peer, self.key, self.inputs(peer.peer), self.scores(peer.peer))
        head.load_state(self._document["banks"][peer.peer]["heads"][_phase(self.chosen(peer.peer))])
        return head

    def values(self, party: str, rows: npt.NDArray[np.int64]) -> Numbers:
        """Return what the groups give for rows of a target."""
        bank = self._document["banks"][party]
        prefix = "groups/"
        if self.chosen(party) != JOINT:
            prefix = f"groups without source of {party}/"
        elif bank["has_own_groups"]:
            prefix = f"groups of {party}/"
        self._network.load_state_dict(tensors_under(prefix, self._part.tensors))
        extractors = Extractors(self._config, self._network, self._columns, self.session.own_seed, domains=1, rate=1.0)
        return np.concatenate([extractors.values(rows), self._columns.marks(self.new(party), rows)], axis=1)


class TargetScorer:
    """A target with a trained model."""

    def __init__(self, session: Session, holding: Holding, config: PrADA) -> None:
        self.session, self._config = session, config
        self.part: ModelPart = own_part(session, holding)
        document = self.part.document
        self.encoder = StepEncoder.from_json(document["step_encoder"])
        self.labels = LabelEncoder.from_json(document["label_encoder"])
        self.peer = session.channel(HOLDER)
        positions = holding.pair(self.peer.peer).aligned.positions
        self.columns = cut_off(self.encoder.transform(holding.table, positions))
        self.chosen = str(document["chosen"])
        self.groups = tuple(document["groups"])
        places = {name: place for place, name in enumerate(self.groups)}
        self.new = tuple(places[name] for name in document["new"]) if self.chosen == JOINT else ()
        """The group of each category that has a weight of its own."""
        if self.chosen == LOCAL:
            self.groups = ()
            self.coefficients, self.intercept = local_weights(document["local"])
        else:
            own = f"{_phase(self.chosen)}/"
            self.coefficients = self.part.tensors[f"{own}coefficients"].numpy()
            self.intercept = self.part.tensors[f"{own}intercept"].numpy()

    @property
    def inputs(self) -> int:
        """Return how many numbers the feature holder gives per row."""
        return len(self.groups) * self._config.aggregate + len(self.new)

    @property
    def scores(self) -> int:
        """Return how many scores a row has."""
        return outputs_for(self.labels.task, len(self.labels.classes))

    def head(self) -> BankHead:
        """Return this party's half of the scoring layer, after it has got the feature holder's key."""
        config = self._config
        self.peer.send(ModelMark(self.part.document["mark"]))
        key = receive_key(self.session, self.peer, config.key_size) if config.is_sealed else None
        head = bank_head(config, self.peer, key, self.inputs, self.scores)
        head.load_state(self.part.document["heads"][_phase(self.chosen)])
        return head

    def logits(self) -> Numbers:
        """Have all rows scored."""
        return self.head().score(len(self.columns)) + self.own_logits()

    def own_logits(self) -> Numbers:
        """Return what this party's own columns give, intercept included."""
        return np.asarray(self.columns @ self.coefficients + self.intercept)

    def predicted(self, logits: Numbers) -> Numbers:
        """Return probabilities, or standardised numbers, in terms of the true labels."""
        # A model of own columns alone has learned the labels as they are.
        weights = {} if self.chosen == LOCAL else tensors_under("disguise/", self.part.tensors)
        disguise = LabelDisguise.from_state(weights) if weights else None
        task = self.labels.task
        return undisguised(task, scores_of(task, logits) if len(logits) else np.empty(0), disguise)


def _phase(chosen: str) -> str:
    return "finetune" if chosen in (JOINT, LOCAL) else "vfl"
