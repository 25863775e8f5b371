"""Multiply generated columns with the weights of the holder whose columns they are, without showing it the columns.

The asking holder encrypts; each other holder multiplies with its weights and keeps one share of the product, the asking
one decrypts the other share. Shares meet in the collaborator's masked sum only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import Format, PrivateKey, PublicKey
from colonnade.crypto.ring import Words
from colonnade.errors import ConfigError
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.sealed_query import QueryFormat, answer_query, receive_answer, send_query
from colonnade.methods.mpdl.central import HolderSide
from colonnade.methods.mpdl.completion import Completion
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.messages import BlockGradient
from colonnade.session import Channel, Session

__all__ = ["AskedSegments", "Asking"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

# Generated columns lie from 0 to 1; weights are divided by the columns' spread, of which the least is a tenth.
_COLUMNS = Format(fraction_bits=20, magnitude_bits=1)
_WEIGHTS = Format(fraction_bits=20, magnitude_bits=7)


@dataclass(frozen=True)
class Asking:
    """A holder that can ask others to multiply, and be asked."""

    session: Session
    completion: Completion
    hidden: int
    key: PrivateKey
    keys: Mapping[str, PublicKey]
    peers: tuple[Channel, ...]

    @classmethod
    def prepare(cls, session: Session, config: MPDL, completion: Completion, hidden: int) -> Asking:
        """Exchange keys with all other holders."""
        if config.image is not None:
            raise ConfigError(
                "Rows of pictures that only one holder knows are scored with completion = 'own_copy' and augment = "
                "true only. Set these, or remove config.image."
            )
        peers = tuple(channel for channel in session.all_channels if channel.peer_role != COLLABORATOR)
        key = make_key(session, config.key_size)
        for peer in peers:
            send_key(peer, key)
        keys = {peer.peer: receive_key(session, peer, config.key_size) for peer in peers}
        return cls(session, completion, hidden, key, keys, peers)

    def ask(self, generated: torch.Tensor, place: str = "") -> Words:
        """Return this holder's share of what all others make of generated columns; outside of steps, at a place."""
        for peer in self.peers:
            columns = self.completion.meant_for(peer, generated)
            format = self._format(columns.shape[1], len(generated), self.key)
            send_query(peer, self.key, format, columns.double().numpy())
        total = np.zeros((len(generated), self.hidden), np.uint64)
        for peer in self.peers:
            width = self.completion.meant_for(peer, generated[:1]).shape[1]
            with peer.openings.at(place):
                total += receive_answer(peer, self.key, self._format(width, len(generated), self.key), self.hidden)
        return total

    def answer(self, party: str, side: HolderSide, rows: int) -> Words:
        """Return this holder's share of what its weights make of a partner's generated columns of so many rows."""
        weights, offset = self.completion.in_unit_space(side.block)
        key = self.keys[party]
        share = answer_query(self.channel(party), key, self._format(len(weights), rows, key), weights)
        return share + side.ring.encode(offset)[None]

    def channel(self, party: str) -> Channel:
        """Return the channel to another holder."""
        return next(peer for peer in self.peers if peer.peer == party)

    def _format(self, columns: int, rows: int, key: PublicKey) -> QueryFormat:
        return QueryFormat(terms=columns, columns=rows, key_bits=key.bits, numbers=_COLUMNS, factors=_WEIGHTS)


class AskedSegments:
    """Rows of a training that stand for those of one holder, whose generated columns others multiply for it."""

    def __init__(self, asking: Asking, owned: Mapping[str, tuple[int, Places]]) -> None:
        self._asking, self._owned = asking, owned
        own = owned.get(asking.session.party)
        self._generated = None if own is None else asking.completion.generated(own[1]).double()
        self._places: dict[str, Places] = {}
        self._asked: dict[str, Places] = {}

    def add(self, words: Words, batch: Places, side: HolderSide) -> Words:
        """Add this holder's shares for the rows of a batch that one holder completes."""
        self._places, self._asked = {}, {}
        for party, (start, rows) in self._owned.items():
            places = np.flatnonzero((batch >= start) & (batch < start + len(rows)))
            if not len(places):
                continue
            self._places[party], self._asked[party] = places, batch[places] - start
            if party == self._asking.session.party and self._generated is not None:
                words[places] += self._asking.ask(self._generated[torch.from_numpy(self._asked[party])])
            else:
                words[places] += self._asking.answer(party, side, len(places))
        return words

    def exchange_gradients(self, side: HolderSide, deltas: torch.Tensor) -> None:
        """Give the others what their weights learn from completed rows, and add what these weights learn."""
        for party, places in self._places.items():
            errors = deltas[torch.from_numpy(places)]
            if party == self._asking.session.party and self._generated is not None:
                generated = self._generated[torch.from_numpy(self._asked[party])]
                for peer in self._asking.peers:
                    columns = self._asking.completion.meant_for(peer, generated)
                    peer.send(BlockGradient(columns.T @ errors))
                continue
            peer = self._asking.channel(party)
            shape = {"columns": self._asking.completion.fed, "hidden": self._asking.hidden}
            told = peer.receive(BlockGradient, **shape).values.double()
            weights = next(side.block.parameters())
            learned = self._asking.completion.gradient_of(told, errors).to(weights.dtype)
            weights.grad = learned if weights.grad is None else weights.grad + learned
