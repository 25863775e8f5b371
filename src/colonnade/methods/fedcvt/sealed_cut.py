"""Level 2: codes stay encrypted. The label holder computes every loss from scores, of which it gets those it needs.

Heads are linear, so that attention may average scores in place of codes: what an estimated view adds to a score is the
average of what shared rows add. Attention stays within one party's codes, and its weights are constants in gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.crypto import CipherArray, PrivateKey, PublicKey
from colonnade.exchanges.epochs import check_finite
from colonnade.exchanges.holdings import first_seeds
from colonnade.exchanges.labels import OwnLabels
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_product import Opening, ProductFormat
from colonnade.exchanges.split_linear import SplitOwner, SplitPartner, fit_sums, split_formats
from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.methods.fedcvt.estimates import (
    answer_estimates,
    answer_gradient,
    ask_estimates,
    ask_gradient,
    receive_logits,
    take_estimates,
    take_gradient,
)
from colonnade.methods.fedcvt.guards import fit_is_hidden, hidden_rows
from colonnade.methods.fedcvt.messages import FitCodes, FitGradient, SharedCodes
from colonnade.methods.fedcvt.networks import build_encoders, check_module, codes_of, dtype_of, scored_codes
from colonnade.methods.fedcvt.objective import (
    Outcome,
    add_up,
    agreed_labels,
    orthogonality_loss,
    party_head,
    row_weights,
)
from colonnade.methods.fedcvt.open_cut import CodeSender, make_learner
from colonnade.methods.fedcvt.rows import OwnTable
from colonnade.methods.fedcvt.sealed_heads import SealedHeads
from colonnade.methods.fedcvt.watch import PseudoLabelWatch
from colonnade.nn import attention_weights, row_losses, tensors_under
from colonnade.privacy import SecretNoise
from colonnade.session import Session

__all__ = ["SCORED_AT_ONCE", "SealedKeys", "SealedLabelSide", "SealedPartnerSide", "miss_matrix"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Rows that are scored at once.
SCORED_AT_ONCE = 1024


@dataclass(frozen=True)
class SealedKeys:
    """This party's key, and its partners' by name."""

    own: PrivateKey
    theirs: Mapping[str, PublicKey]

    @classmethod
    def exchange(cls, session: Session, config: FedCVT) -> SealedKeys:
        """Draw a key and exchange public parts with every partner."""
        own = make_key(session, config.key_size)
        for peer in session.all_channels:
            send_key(peer, own)
        return cls(own, {peer.peer: receive_key(session, peer, config.key_size) for peer in session.all_channels})


class SealedPartnerSide:
    """A feature holder with one candidate under training."""

    def __init__(
        self,
        session: Session,
        config: FedCVT,
        variant: Variant,
        table: OwnTable,
        outputs: int,
        keys: SealedKeys,
        module: nn.Module | None,
    ) -> None:
        self._session, self._config, self._variant, self._table = session, config, variant, table
        self._peer = session.channel("label_holder")
        self._keys = keys
        inputs = table.features.shape[1]
        encoders = build_encoders(
            config, variant, session.party, inputs, first_seeds(session, config.secret_start), module
        )
        check_module(config, encoders, session.party, table.features)
        self._encoders = encoders
        self.learner = make_learner(config, {"encoders": encoders})
        self._parties = len(session.plan.parties)
        self._columns = outputs * (2 if variant.has_party_heads else 1)
        self._missing = outputs * (self._parties if variant.has_party_heads else 1)
        widths = [config.width_of(kind) for kind in variant.kinds]
        formats = split_formats(widths, self._columns, config.batch_size + config.own_batch_size, keys.own.bits)
        self.owner = SplitOwner(self._peer, formats, keys.own, momentum=config.head_momentum)
        self._best: list[dict[str, list[str]]] | None = None
        pulls = config.sealed_pull == "one_sided" and variant.name == "fedcvt" and "shared" in variant.kinds
        self.sender = CodeSender(session, config, self._peer, f"pull/{variant.name}") if pulls and config.pull else None
        self._anchors: dict[str, torch.Tensor] = {}

    def open(self) -> None:
        """Draw the first shares of the weights."""
        self.owner.open(_starts(self._session, self._variant, self.owner.blocks, self._peer.peer))

    def step(self, shared: Places, own: Places, epoch: int) -> None:
        """Take one step."""
        config, variant = self._config, self._variant
        own = own if variant.uses_partner_rows else own[:0]
        is_labelled = epoch >= config.warmup_epochs and config.pseudo_labels
        rows = torch.from_numpy(np.concatenate([shared, own]))
        self.learner.zero_gradients()
        codes = codes_of(self._encoders, self._table.features[rows])
        check_finite(sum(one.detach().sum().item() for one in codes.values()), self._session)
        count = len(shared)
        sent = len(own) if is_labelled and len(own) > hidden_rows(self._missing) else 0
        plain = {kind: one.detach() for kind, one in codes.items()}
        of_shared = [one[:count].double().numpy() for one in plain.values()]
        of_own = [one[count : count + sent].double().numpy() for one in plain.values()]
        if self.sender is not None:
            noised = self.sender.noised(plain["shared"][:count], shared, "batch", self._session.step)
            self._peer.send(SharedCodes(noised))
        fits = variant.name == "fedcvt" and fit_is_hidden(config, count, self._parties)
        partner_fits = fits and config.partner_fit > 0.0
        self.owner.score(of_shared, of_own, trains=True, fits=partner_fits)
        if sent:
            weights = self._weights(plain, {kind: one[:count] for kind, one in plain.items()}, slice(count, None))
            key = self._keys.theirs[self._peer.peer]
            logits = receive_logits(self._peer, key, (len(plain) * count, self._missing))
            answer_estimates(self._peer, logits, weights)
            answer_gradient(self._peer, key, weights, self._missing)
        if fits and config.own_fit:
            self._answer_fit(plain, count)
        gradients, missed = self.owner.learn((count, sent), partner_fits, config.head_rate * config.weight_decay)
        loss = torch.zeros((), dtype=dtype_of(config))
        for place, one in enumerate(codes.values()):
            gradient = torch.zeros_like(one)
            gradient[: count + sent] += torch.from_numpy(gradients[place]).to(one.dtype)
            if partner_fits:
                gradient[:count] += _fit_scale(config, variant, config.partner_fit, count) * torch.from_numpy(
                    missed[place]
                ).to(one.dtype)
            loss = loss + (one * gradient).sum()
        if variant.name == "fedcvt" and len(codes) == 2 and config.partner_orthogonality:
            own_loss = orthogonality_loss(config.orthogonality, codes["shared"], codes["unique"])
            loss = loss + config.partner_orthogonality * own_loss
        loss.backward()  # type: ignore[no-untyped-call]
        if config.gradient_clip:
            self.learner.clip_gradients(config.gradient_clip)
        self.learner.step()

    def validate(self) -> None:
        """Let the label holder have the scores of validation rows."""
        with self._peer.openings.at("validation"):
            self.score_rows(self._table.validation)

    def finish(self) -> None:
        """Let it have what the best model gives for anchors, validation and test rows, and averages for the latter."""
        self.learner.restore_best()
        if self._best is not None:
            self.owner.load_state(self._best)
        table = self._table
        self._anchors = self.codes(table.anchors)
        nothing = [one[:0].double().numpy() for one in self._anchors.values()]
        for name, rows in (("anchors", None), ("validation", table.validation), ("test", table.test)):
            with self._peer.openings.at(f"end of {self._variant.name}, {name}"):
                if rows is None:
                    self.owner.score([one.double().numpy() for one in self._anchors.values()], nothing)
                else:
                    self.score_rows(rows)
        if self._variant.name == "fedcvt" and self._variant.uses_partner_rows:
            logits = receive_logits(self._peer, self._keys.theirs[self._peer.peer], self.anchor_shape)
            for rows in (table.validation, table.test):
                self.estimate(logits, self.codes(rows))

    @property
    def anchor_shape(self) -> tuple[int, int]:
        """Return the shape of what others' codes of anchors add to scores, the kinds below each other."""
        return sum(len(one) for one in self._anchors.values()), self._missing

    def estimate(self, logits: CipherArray, codes: Mapping[str, torch.Tensor]) -> None:
        """Average scores of anchors for rows, by this party's attention."""
        count = len(next(iter(codes.values())))
        for start in range(0, count, SCORED_AT_ONCE):
            piece = slice(start, start + SCORED_AT_ONCE)
            answer_estimates(self._peer, logits, self._weights(codes, self._anchors, piece))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self.learner.state()
        if self.sender is not None:
            tensors |= {f"budget.{name}": value for name, value in self.sender.budget.state().items()}
        return tensors, document | {"shares": self.owner.state(), "best_shares": self._best}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.learner.load_state(tensors, document)
        if self.sender is not None:
            self.sender.budget.load_state(tensors_under("budget.", tensors))
        self.owner.load_state(document["shares"])
        self._best = document["best_shares"]

    def keep_best(self) -> None:
        """Remember the weights and shares as they are now."""
        self.learner.keep_best()
        self._best = copy.deepcopy(self.owner.state())

    def part(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what scoring needs later."""
        anchors = {f"anchors.{kind}": one for kind, one in self._anchors.items()}
        return self.learner.weights() | anchors, {"shares": self.owner.state()}

    def load_part(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `part` returned, to score."""
        self.learner.load_weights({name: one for name, one in tensors.items() if not name.startswith("anchors.")})
        kept = tensors_under("anchors.", tensors)
        self._anchors = {kind: kept[kind] for kind in self._variant.kinds}
        self.owner.load_state(document["shares"])

    def score_rows(self, rows: Places) -> None:
        """Let the label holder have the scores of rows."""
        codes = [one.double().numpy() for one in self.codes(rows).values()]
        for start in range(0, len(rows), SCORED_AT_ONCE):
            with self._peer.openings.at(f"rows from {start}"):
                self.owner.score([one[:0] for one in codes], [one[start : start + SCORED_AT_ONCE] for one in codes])

    def codes(self, rows: Places) -> dict[str, torch.Tensor]:
        """Return this party's codes of rows that are only scored."""
        return scored_codes(self._encoders, self._table.features[torch.from_numpy(rows)])

    def _weights(self, codes: Mapping[str, torch.Tensor], anchors: Mapping[str, torch.Tensor], rows: slice) -> Numbers:
        """Return the attention of rows to shared rows, the kinds side by side, spread over enough of them."""
        config = self._config
        found = [
            attention_weights(one[rows], anchors[kind], config.temperature, least_keys=config.least_keys)
            for kind, one in codes.items()
        ]
        return torch.cat(found, dim=1).double().numpy()

    def _answer_fit(self, own: Mapping[str, torch.Tensor], count: int) -> None:
        key = self._keys.theirs[self._peer.peer]
        received = self._peer.receive(FitCodes, kinds=len(own)).values
        answers = []
        for (kind, codes), one in zip(own.items(), received, strict=True):
            sums = fit_sums(count, self._config.width_of(kind), key.bits)
            answers.append(sums.blurred(one.under(key, sums.sealed()), miss_matrix(self._config, codes[:count])))
        self._peer.send(FitGradient(tuple(answers)))


class SealedLabelSide:
    """The label holder with one candidate under training."""

    def __init__(
        self,
        session: Session,
        config: FedCVT,
        variant: Variant,
        table: OwnTable,
        labels: OwnLabels,
        keys: SealedKeys,
        module: nn.Module | None,
    ) -> None:
        self._session, self._config, self._variant = session, config, variant
        self._table, self._labels, self._keys = table, labels, keys
        self._peers = session.channels("feature_holder")
        inputs = table.features.shape[1]
        encoders = build_encoders(
            config, variant, session.party, inputs, first_seeds(session, config.secret_start), module
        )
        check_module(config, encoders, session.party, table.features)
        self._encoders = encoders
        parties = 1 + len(self._peers)
        self.heads = SealedHeads(
            config, variant, parties, labels.outputs, first_seeds(session, config.secret_start)(f"{variant.name}/heads")
        )
        self.learner = make_learner(config, {"encoders": encoders, "heads": self.heads})
        widths = [config.width_of(kind) for kind in variant.kinds]
        most = config.batch_size + config.own_batch_size
        self.partners = []
        for peer in self._peers:
            key = keys.theirs[peer.peer]
            formats = split_formats(widths, self.heads.columns, most, key.bits)
            self.partners.append(SplitPartner(peer, formats, key, momentum=config.head_momentum))
        self._best: list[list[dict[str, list[str]]]] | None = None
        self.watch = PseudoLabelWatch(config, labels, table)
        self._anchors: list[list[torch.Tensor]] = []
        self._anchor_codes: dict[str, torch.Tensor] = {}

    def open(self) -> None:
        """Take part in drawing the first shares of the weights."""
        for partner in self.partners:
            partner.open(_starts(self._session, self._variant, partner.blocks, partner.peer))

    def step(self, shared: Places, own: Places, partner_rows: Sequence[int], epoch: int) -> float:
        """Take one step with all feature holders and return its loss."""
        config, variant, dtype = self._config, self._variant, dtype_of(self._config)
        own = own if variant.uses_own_rows else own[:0]
        rows = torch.from_numpy(np.concatenate([shared, own]))
        count = len(shared)
        is_labelled = epoch >= config.warmup_epochs and config.pseudo_labels and variant.uses_partner_rows
        fewest = hidden_rows(self.heads.missing_columns)
        extra = [one if is_labelled and one > fewest else 0 for one in partner_rows]
        self.learner.zero_gradients()
        mine = codes_of(self._encoders, self._table.features[rows])
        pulls = [
            peer.receive(SharedCodes, rows=count, width=config.shared_width).values.to(dtype)
            for peer in (self._peers if self._pulls else ())
        ]
        fits = variant.name == "fedcvt" and fit_is_hidden(config, count, 1 + len(self.partners))
        masks = [
            partner.ask((count, one), trains=True, fits=fits and config.partner_fit > 0.0)
            for partner, one in zip(self.partners, extra, strict=True)
        ]
        by_kind: list[list[torch.Tensor]] = []
        others: list[torch.Tensor] = []
        for partner, mask in zip(self.partners, masks, strict=True):
            kinds, rest = partner.logits(mask)
            by_kind.append([torch.from_numpy(one).to(dtype).requires_grad_() for one in kinds])
            others.append(torch.from_numpy(rest).to(dtype).requires_grad_())
        # The label holder's own codes come first everywhere.
        of_shared = [self.heads.parts({kind: one[:count] for kind, one in mine.items()}), *by_kind]
        estimates = self._estimates(of_shared, extra, dtype)
        own_parts = self._own_estimates(mine, by_kind, count) if len(own) else None
        outcome = self._outcome(mine, of_shared, own_parts, others, estimates, shared, own, pulls)
        check_finite(outcome.total.item(), self._session)
        # Gradients that come back from partners go through the same codes once more.
        outcome.total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        returned = self._returned(estimates, len(of_shared[0]) * count, dtype)
        again: torch.Tensor = torch.zeros((), dtype=dtype)
        slopes = [[_gradient(one) for one in kinds] for kinds in by_kind]
        for place, gradients in returned:
            for kind, gradient in enumerate(gradients):
                for other, one in self.heads.carried(place, gradient):
                    if other == 0:
                        again = again + (of_shared[0][kind] * one).sum()
                    else:
                        slopes[other - 1][kind] = slopes[other - 1][kind] + one
        if fits and config.own_fit:
            scale = _fit_scale(config, variant, config.own_fit, count)
            for codes, missed in zip(mine.values(), self._fit_gradient(mine, count), strict=True):
                again = again + (codes[:count] * (scale * missed.to(dtype))).sum()
        if again.requires_grad:
            again.backward()  # type: ignore[no-untyped-call]
        matrices = (
            [miss_matrix(config, one.detach()[:count]) for one in mine.values()] if fits and config.partner_fit else []
        )
        for place, partner in enumerate(self.partners):
            of_rest = _gradient(others[place])
            all_slopes = [torch.cat([one, of_rest]).double().numpy() for one in slopes[place]]
            partner.teach(all_slopes, config.head_rate, matrices, config.head_rate * config.weight_decay)
        if config.gradient_clip:
            self.learner.clip_gradients(config.gradient_clip)
        self.learner.step()
        self.watch.saw(outcome)
        return float(outcome.total.item())

    def validate(self) -> torch.Tensor:
        """Return the outputs for validation rows, as they are now."""
        with torch.no_grad():
            return self.heads.whole(self._scored(self._table.validation))["joint"]

    def finish(self) -> dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        """Return, by situation and way of scoring, the best model's outputs for validation and test rows."""
        self.learner.restore_best()
        if self._best is not None:
            for partner, state in zip(self.partners, self._best, strict=True):
                partner.load_state(state)
        table, name = self._table, self._variant.name
        with torch.no_grad():
            self._anchor_codes = self.codes(table.anchors)
            asked = [partner.ask((len(table.anchors), 0)) for partner in self.partners]
            self._anchors = [
                [torch.from_numpy(one).to(dtype_of(self._config)) for one in partner.logits(mask)[0]]
                for partner, mask in zip(self.partners, asked, strict=True)
            ]
            parts = [self._scored(rows) for rows in (table.validation, table.test)]
            found: dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]] = {
                "shared": {name: (self.heads.whole(parts[0])["joint"], self.heads.whole(parts[1])["joint"])}
            }
            ways: list[dict[str, dict[str, torch.Tensor]]] = [{}, {}]
            for number, rows in enumerate((table.validation, table.test)):
                ways[number][self._session.party] = self.alone(self.codes(rows))
            if name == "fedcvt" and self._variant.uses_partner_rows:
                for place, peer in enumerate(self._peers, start=1):
                    format = self.send_anchors(place)
                    for number, rows in enumerate((table.validation, table.test)):
                        with peer.openings.at("test" if number else "validation"):
                            estimated = self.receive_estimates(place, format, len(rows))
                        ways[number][peer.peer] = self.partner_alone(place, parts[number][place], estimated)
                        if number == 0 and len(rows):
                            whole = self.heads.whole(self._with_missing(place, parts[0][place], estimated))
                            agreed = agreed_labels(self._config, self._labels.task, list(whole.values()))
                            self.watch.judge(*agreed)
            for situation in ways[0]:
                both = (ways[0][situation], ways[1][situation])
                found[situation] = {way: (both[0][way], both[1][way]) for way in both[0]}
        return found

    def alone(self, codes: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the ways to score rows that only this party knows."""
        if self._variant.name != "fedcvt":
            return {}
        own = torch.stack(self.heads.parts(codes)).sum(dim=0)
        found = {}
        if self._config.estimate:
            weights = self._attention(codes, self._anchor_codes)
            estimated = [
                torch.stack([weight @ one for weight, one in zip(weights, kinds, strict=True)]).sum(dim=0)
                for kinds in self._anchors
            ]
            found["fedcvt"] = self.heads.whole([own, *estimated])["joint"]
        if self.heads.names:
            nothing = [torch.zeros_like(own) for _ in self.partners]
            found["fedcvt, its own head"] = self.heads.whole([own, *nothing])[party_head(0)]
        return found

    def partner_alone(self, place: int, own: torch.Tensor, estimated: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the ways to score rows that only one partner knows."""
        by_party = self._with_missing(place, own, estimated)
        whole = self.heads.whole(by_party)
        found = {"fedcvt": whole["joint"]}
        if self.heads.names:
            found["fedcvt, its own head"] = whole[party_head(place)]
        return found

    def send_anchors(self, place: int) -> ProductFormat:
        """Send one partner what all others' codes of anchors add to scores."""
        by_party = [self.heads.parts(self._anchor_codes), *self._anchors]
        kinds = [
            self.heads.gather_missing(place, [one[kind] for one in by_party])
            for kind in range(len(self._variant.kinds))
        ]
        return ask_estimates(self._peers[place - 1], self._keys.own, kinds)

    def receive_estimates(self, place: int, format: ProductFormat, count: int) -> torch.Tensor:
        """Receive averages of what was sent, for so many rows of one partner."""
        pieces = [np.zeros((0, self.heads.missing_columns))]
        for start in range(0, count, SCORED_AT_ONCE):
            rows = min(SCORED_AT_ONCE, count - start)
            peer = self._peers[place - 1]
            with peer.openings.at(f"rows from {start}"):
                pieces.append(take_estimates(peer, self._keys.own, format, rows))
        return torch.from_numpy(np.concatenate(pieces)).to(dtype_of(self._config))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self.learner.state()
        shares = [partner.state() for partner in self.partners]
        return tensors, document | {"shares": shares, "best_shares": self._best, "watch": self.watch.state()}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.learner.load_state(tensors, document)
        for partner, state in zip(self.partners, document["shares"], strict=True):
            partner.load_state(state)
        self._best = document["best_shares"]
        self.watch.load_state(document["watch"])

    def keep_best(self) -> None:
        """Remember the weights and shares as they are now."""
        self.learner.keep_best()
        self._best = copy.deepcopy([partner.state() for partner in self.partners])

    def part(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what scoring needs later: networks, shares, and what all codes of anchors add to scores."""
        tensors = dict(self.learner.weights())
        tensors |= {f"anchors.{kind}": one for kind, one in self._anchor_codes.items()}
        for place, kinds in enumerate(self._anchors, start=1):
            tensors |= {f"logits.{place}.{number}": one for number, one in enumerate(kinds)}
        return tensors, {"shares": [partner.state() for partner in self.partners]}

    def load_part(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `part` returned, to score."""
        apart = ("anchors.", "logits.")
        self.learner.load_weights({name: one for name, one in tensors.items() if not name.startswith(apart)})
        kept = tensors_under("anchors.", tensors)
        self._anchor_codes = {kind: kept[kind] for kind in self._variant.kinds}
        self._anchors = [
            [tensors[f"logits.{place}.{number}"] for number in range(len(self._variant.kinds))]
            for place in range(1, 1 + len(self.partners))
        ]
        for partner, state in zip(self.partners, document["shares"], strict=True):
            partner.load_state(state)

    def scored_with(self, codes: Mapping[str, torch.Tensor], count: int) -> list[torch.Tensor]:
        """Return what all parties' codes of so many rows add to scores, this party's given."""
        found = [torch.stack(self.heads.parts(codes)).sum(dim=0)]
        return found + [self.partner_part(place, count) for place in range(1, 1 + len(self.partners))]

    def partner_part(self, place: int, count: int) -> torch.Tensor:
        """Return what one partner's codes of so many rows add to scores."""
        partner = self.partners[place - 1]
        pieces = [np.zeros((0, self.heads.columns))]
        for start in range(0, count, SCORED_AT_ONCE):
            mask = partner.ask((0, min(SCORED_AT_ONCE, count - start)))
            pieces.append(partner.logits(mask)[1])
        return torch.from_numpy(np.concatenate(pieces)).to(dtype_of(self._config))

    @property
    def _pulls(self) -> bool:
        config = self._config
        wanted = config.sealed_pull == "one_sided" and config.pull > 0.0
        return wanted and self._variant.name == "fedcvt" and "shared" in self._variant.kinds

    def _scored(self, rows: Places) -> list[torch.Tensor]:
        return self.scored_with(self.codes(rows), len(rows))

    def codes(self, rows: Places) -> dict[str, torch.Tensor]:
        """Return this party's codes of rows that are only scored."""
        return scored_codes(self._encoders, self._table.features[torch.from_numpy(rows)])

    def _attention(self, codes: Mapping[str, torch.Tensor], anchors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return this party's attention of rows to shared rows, by kind."""
        return [
            attention_weights(one.detach(), anchors[kind].detach(), self._config.temperature)
            for kind, one in codes.items()
        ]

    def _estimates(
        self, of_shared: Sequence[Sequence[torch.Tensor]], extra: Sequence[int], dtype: torch.dtype
    ) -> list[torch.Tensor | None]:
        """Have every partner average what the others' codes of shared rows add, for its own rows."""
        formats: list[ProductFormat | None] = []
        for place, (peer, count) in enumerate(zip(self._peers, extra, strict=True), start=1):
            kinds = [
                self.heads.gather_missing(place, [one[kind] for one in of_shared])
                for kind in range(len(self._variant.kinds))
            ]
            formats.append(ask_estimates(peer, self._keys.own, kinds) if count else None)
        found: list[torch.Tensor | None] = []
        for peer, count, format in zip(self._peers, extra, formats, strict=True):
            if format is None:
                found.append(None)
                continue
            values = take_estimates(peer, self._keys.own, format, count)
            found.append(torch.from_numpy(values).to(dtype).requires_grad_())
        return found

    def _own_estimates(
        self, mine: Mapping[str, torch.Tensor], by_kind: Sequence[Sequence[torch.Tensor]], count: int
    ) -> list[torch.Tensor]:
        """Return what all parties' codes of this party's own rows add, its partners' estimated."""
        own = {kind: one[count:] for kind, one in mine.items()}
        weights = self._attention(own, {kind: one[:count] for kind, one in mine.items()})
        estimated = [
            torch.stack([weight @ one for weight, one in zip(weights, kinds, strict=True)]).sum(dim=0)
            for kinds in by_kind
        ]
        return [torch.stack(self.heads.parts(own)).sum(dim=0), *estimated]

    def _with_missing(self, place: int, own: torch.Tensor, estimated: torch.Tensor) -> list[torch.Tensor]:
        split = iter(self.heads.split_missing(place, estimated))
        return [own if other == place else next(split) for other in range(1 + len(self.partners))]

    def _outcome(
        self,
        mine: Mapping[str, torch.Tensor],
        of_shared: Sequence[Sequence[torch.Tensor]],
        own_parts: list[torch.Tensor] | None,
        others: Sequence[torch.Tensor],
        estimates: Sequence[torch.Tensor | None],
        shared: Places,
        own: Places,
        pulls: Sequence[torch.Tensor],
    ) -> Outcome:
        """Return a step's loss from scores."""
        config, task = self._config, self._labels.task
        targets = [self._labels.targets[torch.from_numpy(shared)]]
        groups = [self.heads.whole([torch.stack(list(kinds)).sum(dim=0) for kinds in of_shared])]
        estimated = [False]
        outcome = Outcome(targets[0])
        if own_parts is not None:
            groups.append(self.heads.whole(own_parts))
            targets.append(self._labels.targets[torch.from_numpy(own)])
            estimated.append(True)
        for place, (rest, guess) in enumerate(zip(others, estimates, strict=True), start=1):
            if guess is None:
                continue
            whole = self.heads.whole(self._with_missing(place, rest, guess))
            kept, labels = agreed_labels(config, task, list(whole.values()))
            outcome.labels.append(labels[kept])
            # From the gradients of fewer rows this party could work out which shared rows they are like.
            kept = kept & (self.watch.is_on and int(kept.sum()) > hidden_rows(self.heads.missing_columns))
            outcome.kept.append(kept)
            groups.append({name: one[kept] for name, one in whole.items()})
            targets.append(labels[kept].to(targets[0].dtype))
            estimated.append(True)
        wanted = torch.cat(targets)
        weights = row_weights(config, targets, estimated)
        losses = {}
        for name in groups[0]:
            each = row_losses(task, torch.cat([group[name] for group in groups]), wanted)
            losses[name] = each.mean() if name == party_head(0) else (weights * each).mean()
        count = len(shared)
        if self._variant.name == "fedcvt":
            if pulls:
                gaps = [(mine["shared"][:count] - one).square() for one in pulls]
                per_row = [gap.mean(dim=1) if config.pair_reduction == "mean" else gap.sum(dim=1) for gap in gaps]
                losses["pull"] = config.pull * torch.stack([one.mean() for one in per_row]).sum()
            if config.own_orthogonality and len(mine) == 2:
                own_loss = orthogonality_loss(config.orthogonality, mine["shared"], mine["unique"])
                losses["orthogonality"] = config.own_orthogonality * own_loss
        return add_up(outcome, losses)

    def _returned(
        self, estimates: Sequence[torch.Tensor | None], rows: int, dtype: torch.dtype
    ) -> list[tuple[int, list[torch.Tensor]]]:
        """Have gradients at estimated scores carried back to shared rows; return them by partner and kind."""
        key = self._keys.own
        asked = [
            (place, ask_gradient(self._peers[place - 1], key, _gradient(guess)))
            for place, guess in enumerate(estimates, start=1)
            if guess is not None
        ]
        found = []
        for place, format in asked:
            opened = torch.from_numpy(take_gradient(self._peers[place - 1], key, format, rows)).to(dtype)
            found.append((place, list(opened.chunk(len(self._variant.kinds)))))
        return found

    def _fit_gradient(self, mine: Mapping[str, torch.Tensor], count: int) -> list[torch.Tensor]:
        """Have the partner say how its estimates of this party's codes of shared rows miss them."""
        key, (peer,) = self._keys.own, self._peers
        codes = [one[:count].detach().double().numpy() for one in mine.values()]
        formats = [fit_sums(count, one.shape[1], key.bits) for one in codes]
        peer.send(FitCodes(tuple(format.seal(key, one) for format, one in zip(formats, codes, strict=True))))
        opening = Opening(peer, FitGradient, key, kinds=len(codes))
        return [
            torch.from_numpy(opening.fixed(one, format.sums(count)).decode())
            for one, format in zip(opening.received.values, formats, strict=True)
        ]


def miss_matrix(config: FedCVT, codes: torch.Tensor) -> Numbers:
    """Return (W - I)' (W - I) of a party's attention W among shared rows: the slope of what estimates by it miss."""
    count = len(codes)
    hidden = torch.eye(count, dtype=torch.bool) if config.self_mask else None
    weights = attention_weights(codes, codes, config.temperature, hidden=hidden).double()
    missed = weights - torch.eye(count, dtype=weights.dtype)
    return np.asarray((missed.T @ missed).numpy())


def _fit_scale(config: FedCVT, variant: Variant, weight: float, count: int) -> float:
    width = sum(config.width_of(kind) for kind in variant.kinds) if config.pair_reduction == "mean" else 1
    return 2.0 * weight / (count * width)


def _starts(session: Session, variant: Variant, blocks: Sequence[Any], peer: str) -> list[Numbers]:
    """Draw this party's half of the initial weights in secret: those of a public seed would be known to all."""
    noise = SecretNoise(session.secret("first weights"))
    found = []
    total = sum(block.format.inputs for block in blocks)
    for number, block in enumerate(blocks):
        shape = (block.format.inputs, block.format.outputs)
        drawn = noise.uniform(f"{variant.name}/{number}/{peer}", 0, shape)
        # Two such halves add up to the variance that torch gives a linear layer.
        found.append((2.0 * drawn - 1.0) / np.sqrt(2.0 * max(total, 1)))
    return found


def _gradient(values: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values) if values.grad is None else values.grad
