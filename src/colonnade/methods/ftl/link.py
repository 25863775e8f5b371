"""The exchange of one step between two parties, encrypted or, for research, in the clear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, Format, Layout, Mask, PrivateKey, PublicKey, encrypt
from colonnade.errors import LeakRefused, TrainingFailed
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_product import ask_to_open, open_for, take_opened
from colonnade.methods.ftl import sealed
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.messages import LayerInputs, MaskedEncoderGradient, OpenedEncoderGradient
from colonnade.session import Channel, Session

__all__ = ["Keys", "Link", "Sizes", "check_guard", "exchange_keys", "exchange_sizes", "parameter_counts"]

Numbers = npt.NDArray[np.float64]
Sealed = CipherArray | Numbers
"""Numbers that are encrypted where the run encrypts."""


@dataclass(frozen=True)
class Keys:
    """This party's key and the partner's."""

    own: PrivateKey
    theirs: PublicKey


def exchange_keys(session: Session, peers: Sequence[Channel], config: FTL) -> list[Keys | None]:
    """Hand a fresh key to every partner and take theirs; None where nothing is encrypted."""
    for peer in peers:
        peer.dims |= {"width": config.width, "moments": config.width * (config.width + 1) // 2}
    if not config.is_sealed:
        return [None] * len(peers)
    own = make_key(session, config.key_size)
    for peer in peers:
        send_key(peer, own)
    return [Keys(own, receive_key(session, peer, config.key_size)) for peer in peers]


@dataclass(frozen=True)
class Sizes:
    """How large a party's encoder is."""

    widths: tuple[int, ...]
    """Inputs of each trained layer, first to last."""
    columns: int


def exchange_sizes(session: Session, peer: Channel, config: FTL, own: Sizes) -> Sizes:
    """Tell how large this party's encoder is, and return the partner's."""
    peer.send(LayerInputs(own.widths, own.columns))
    opens_gradients = config.is_sealed and (config.reveal == "gradients" or session.stage == "validate")
    theirs = peer.receive(LayerInputs, fewest_layers=int(opens_gradients))
    return Sizes(theirs.widths, theirs.columns)


def check_guard(
    session: Session, peer: Channel, config: FTL, rows: int, scores: int, own: Sizes, theirs: Sizes
) -> None:
    """Refuse a step from whose gradients a party could solve for the other's codes, unless both agreed to it.

    A party knows the derivatives of its own codes, so that its gradient is a system of equations: one per parameter,
    about one unknown per shared row and code entry. Where first weights are public, codes are a known function of
    columns, and there are no more unknowns than these.
    """
    if not config.is_sealed or config.reveal == "rows":
        return
    if not config.gamma:
        # The settings have refused this already, unless all parties accept it.
        _refuse(
            session,
            peer,
            config,
            "config.gamma = 0 hides no label from the target.",
            guard="labels",
            what="the target can work out the labels of labelled rows from its gradients",
        )
    if scores > config.width:
        _refuse(
            session,
            peer,
            config,
            f"A row has {scores} scores and a code only {config.width} numbers, so that the source could work out "
            f"codes from scores. Set config.width to {scores} or more.",
            guard="scores",
            what="the source can work out the target's codes from their scores",
            scores=scores,
            width=config.width,
        )
    fewest, equations, entries = 0, 0, 1
    for reader, hidden in ((own, theirs), (theirs, own)):
        found = sum(parameter_counts(reader.widths, config.width))
        each = config.width if config.secret_start else min(config.width, hidden.columns)
        fewest, equations, entries = max(
            (fewest, equations, entries), (math.ceil(config.guard * found / each), found, each)
        )
    if rows >= fewest:
        return
    unknowns, what = rows * entries, "code entries" if config.secret_start else "cells of columns"
    _refuse(
        session,
        peer,
        config,
        f"A step over {rows} shared rows has {unknowns} unknown {what}, and an encoder of this run has {equations} "
        f"parameters: a party could work out the other's codes from the gradients it gets. At least {fewest} rows per "
        "step are needed. Use more shared rows, a larger batch_size, fewer columns or hidden units, or trained_layers "
        f"= 1{'' if config.secret_start else ', or leave out secret_start = false'}.",
        guard="linear system",
        what="a party can work out the other's codes of shared rows from the gradients it gets",
        rows=rows,
        unknowns=unknowns,
        equations=equations,
        needed=config.guard,
    )


def _refuse(session: Session, peer: Channel, config: FTL, why: str, **facts: Any) -> None:
    if not config.allow_leak:
        raise LeakRefused(f"{why} With allow_leak = true all parties accept it, and every ledger says so.")
    session.ledger.mark("override", partner=peer.peer, **facts)


def parameter_counts(widths: tuple[int, ...], width: int) -> list[int]:
    """Return how many parameters each trained layer has, last to first."""
    outputs = (*widths[1:], width)
    return [(inputs + 1) * units for inputs, units in zip(widths, outputs, strict=True)][::-1]


class Link:
    """Two parties of a step: what this one seals, and what it has opened. Without keys nothing is encrypted."""

    def __init__(self, peer: Channel, keys: Keys | None, config: FTL, theirs: Sizes) -> None:
        self.peer, self._keys, self._config, self._theirs = peer, keys, config, theirs
        self._masks: list[Mask] = []

    @property
    def keys(self) -> Keys:
        """Return both keys of an encrypted step."""
        if self._keys is None:
            raise TrainingFailed("An encrypted step was begun without keys.")
        return self._keys

    def seal(self, values: npt.ArrayLike, format: Format) -> Sealed:
        """Encrypt numbers one by one under this party's own key, where anything is encrypted."""
        numbers = np.asarray(values, dtype=np.float64)
        return numbers if self._keys is None else encrypt(self._keys.own, numbers, format)

    def take(self, values: Sealed, format: Format) -> CipherArray:
        """Check numbers that the partner encrypted."""
        layout = sealed.plan(values.shape, format, self.keys.theirs)
        return cast(CipherArray, values).under(self.keys.theirs, layout)

    def ask(self, gradients: Sequence[CipherArray]) -> None:
        """Have gradients opened by the partner, behind masks."""
        self._masks = [ask_to_open(self.peer, MaskedEncoderGradient, sealed.ready(one)) for one in gradients]

    def open(self, deviation: float, layouts: Sequence[Layout], spared: int = 0) -> None:
        """Open what the partner asks for: noise of this party's own is added before it is returned."""
        for number, layout in enumerate(layouts):
            noise = sealed.noise_for(layout, deviation, 0 if number else spared) if deviation else None
            with self.peer.openings.at(f"layer {number}"):
                open_for(self.peer, MaskedEncoderGradient, OpenedEncoderGradient, self.keys.own, layout, noise)

    def answers(self) -> list[Numbers]:
        """Return what the partner opened, without the masks."""
        found = [take_opened(self.peer, OpenedEncoderGradient, mask).decode() for mask in self._masks]
        self._masks = []
        return found

    def partner_layouts(self, more: int = 0) -> list[Layout]:
        """Return the form of the partner's gradients, with so many numbers more after the last layer's."""
        counts = parameter_counts(self._theirs.widths, self._config.width)
        counts[0] += more
        return self._layouts(counts)

    def row_layouts(self, rows: int) -> list[Layout]:
        """Return the form of the target's row gradients, which only reveal = rows opens."""
        return sealed.gradient_layouts([rows * self._config.width], [2 * sealed.FRACTION_BITS], self.keys.own)

    def code_layouts(self, rows: int) -> list[Layout]:
        """Return the form of codes and the remainder of the loss, which only reveal = rows opens."""
        counts = [rows * self._config.width, 1]
        return sealed.gradient_layouts(counts, [sealed.FRACTION_BITS] * 2, self.keys.own)

    def _layouts(self, counts: Sequence[int]) -> list[Layout]:
        scales = [sealed.FRACTION_BITS * (2 + number) for number in range(len(counts))]
        return sealed.gradient_layouts(counts, scales, self.keys.own)
