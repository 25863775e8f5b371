"""A secure linear layer over codes of two kinds, whose logits come apart for some rows and added up for others.

The layer of `secure_linear`, once for every kind of code, after FedCVT's encrypted cut. Of shared rows the partner
needs the logits of each kind by itself, because attention averages each kind with its own weights. Of the owner's other
rows it needs, and gets, only their sum. One step is:

1. owner to partner: the encrypted codes, and its share of the weights, encrypted;
2. partner to owner: its part of the logits, behind a uniform mask;
3. owner to partner: the same opened, with the owner's part added;
4. partner to owner: the weight gradient, masked, and the gradient at the codes;
5. owner to partner: what completes the partner's share of the next weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, Mask, PrivateKey, PublicKey
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner, own_part
from colonnade.exchanges.secure_product import Opening, ProductFormat, seal
from colonnade.messages import (
    ENCRYPTED,
    GIVEN,
    MASKED,
    PLAIN,
    Between,
    Carries,
    Dims,
    Length,
    Template,
    Warns,
    between,
    message,
)
from colonnade.session import Channel

__all__ = [
    "SealedArray",
    "SealedByKind",
    "SplitOwner",
    "SplitPartner",
    "fit_sums",
    "split_formats",
    "split_linear",
]

Numbers = npt.NDArray[np.float64]
Array = np.ndarray[Any, Any]
Block = TypeVar("Block", LinearOwner, LinearPartner)

_CODES = Format(fraction_bits=20, magnitude_bits=6)
_STEPS = Format(fraction_bits=32, magnitude_bits=3)
# With this many bits for slopes and the number of scores, 32 entries of a code gradient fit into a 2048-bit key.
_SLOPE_BITS = 34
_SLOPE_MAGNITUDE = 2
# The owner's share, and the start that it hides.
_LARGEST_SHARE = 2 << (
    _CODES.fraction_bits + _STEPS.fraction_bits + LinearFormat.weight_magnitude_bits + LinearFormat.hiding_bits
)

# Of each array the layout is agreed, and compared before it is used.
SealedArray = Annotated[CipherArray, Dims(None, None)]
OpenedArray = Annotated[Array, Dims(None, None, kind="u")]
SealedByKind = Annotated[tuple[SealedArray, ...], Length("kinds", "kinds")]
OpenedByKind = Annotated[tuple[OpenedArray, ...], Length("kinds", "kinds")]


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="level 2, set-up", carries=Carries.SHARE)
class OpeningShares:
    """The receiver's shares of the initial weights. Reveals: nothing; the sender's own shares hide them."""

    values: Annotated[tuple[int, ...], Length("weights", "weights"), Between(-_LARGEST_SHARE, _LARGEST_SHARE)]


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="level 2, 1 (he_repr)", carries=Carries.ROW_CODE)
class SealedCodes:
    """The sender's codes of a batch, by kind, packed by column and by row; shared ones once more for the fit term.

    Reveals: how many rows and columns.
    """

    shared: SealedByKind
    others: SealedByKind
    rows: Annotated[tuple[SealedArray, ...], Length("trained", "trained")]
    keys: Annotated[tuple[SealedArray, ...], Length("fitted", "fitted")]


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="level 2, 10 (he_noise)", carries=Carries.SHARE)
class SealedShares:
    """The sender's shares of the weights. Reveals: nothing."""

    values: SealedByKind


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="level 2, 2 (he_logit_masked)", carries=Carries.SHARE)
class MaskedLogits:
    """The sender's part of the logits, behind a uniform mask. Reveals: nothing but the number of rows."""

    shared: SealedByKind
    others: SealedArray


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="level 2, 3 (logit_masked)", carries=Carries.ROW_SCORE)
class OpenedLogits:
    """The logits of a batch, behind the receiver's own mask.

    Reveals: what the sender's codes add to the scores of every row: for shared rows by kind of code, for others the
    sum. Over many steps with changing weights these tell more and more about the codes.
    """

    shared: OpenedByKind
    others: OpenedArray


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="level 2, 8 (he_wgrad)", carries=Carries.WEIGHTS)
class MaskedWeightGradient:
    """The gradient of the shared weights, behind a uniform mask. Reveals: nothing."""

    values: SealedByKind


@message(
    sender=GIVEN,
    receiver=GIVEN,
    protection=PLAIN,
    step="level 2, 8 (he_rgrad)",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class SealedCodeGradient:
    """The gradient at the receiver's codes, under the receiver's key; what estimates of them miss, apart from the rest.

    Reveals: the gradient at the receiver's codes, whose rows are multiples of the weights: from it the receiver can
    read the weights, most labels of shared rows, and which of its own rows got a label, which one, and how sure heads
    are of it. What estimates miss tells much of how alike the sender finds shared rows.
    """

    values: SealedByKind
    fits: Annotated[tuple[SealedArray, ...], Length("fitted", "fitted")]


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="level 2, 9 (wgrad_noised)", carries=Carries.SHARE)
class WeightUpdate:
    """What completes the receiver's shares of the next weights. Reveals: nothing; the sender's shares hide it."""

    values: OpenedByKind


def split_linear(owner: str, partner: str, *, trains: bool) -> tuple[Template, ...]:
    """Return the layer's messages between two roles, to learn or only to score."""
    of_owner: tuple[type, ...] = (SealedCodes, OpenedLogits)
    of_partner: tuple[type, ...] = (MaskedLogits,)
    if trains:
        of_owner += (OpeningShares, SealedShares, WeightUpdate)
        of_partner += (MaskedWeightGradient, SealedCodeGradient)
    return (
        *(between(one, owner, partner) for one in of_owner),
        *(between(one, partner, owner) for one in of_partner),
    )


def split_formats(widths: Sequence[int], outputs: int, most_rows: int, key_bits: int) -> tuple[LinearFormat, ...]:
    """Return the formats of a layer over codes of these widths."""
    slopes = Format(_SLOPE_BITS - _SLOPE_MAGNITUDE - outputs.bit_length(), _SLOPE_MAGNITUDE)
    return tuple(
        LinearFormat(
            inputs=width,
            outputs=outputs,
            most_rows=most_rows,
            key_bits=key_bits,
            input_format=_CODES,
            step_format=_STEPS,
            slope_format=slopes,
            summed_inputs=sum(widths),
        )
        for width in widths
    )


def fit_sums(rows: int, columns: int, key_bits: int) -> ProductFormat:
    """Return how codes of shared rows are multiplied with a matrix of attention among them, times its transpose."""
    factors = Format(fraction_bits=20, magnitude_bits=(rows + 2).bit_length())
    return ProductFormat(terms=rows, columns=columns, key_bits=key_bits, numbers=_CODES, factors=factors)


def _fits(block: LinearOwner | LinearPartner, rows: int) -> ProductFormat:
    return fit_sums(rows, block.format.inputs, block.format.key_bits)


class _Split(Generic[Block]):
    """What both sides keep: a layer for every kind of code."""

    blocks: list[Block]

    def state(self) -> list[dict[str, list[str]]]:
        """Return the shares and their momentum for a checkpoint."""
        return [block.state()[1] for block in self.blocks]

    def load_state(self, state: Sequence[dict[str, list[str]]]) -> None:
        """Go on from a checkpoint."""
        for block, one in zip(self.blocks, state, strict=True):
            block.load_state({}, one)


class SplitOwner(_Split[LinearOwner]):
    """The side that holds the codes and the key."""

    def __init__(
        self, peer: Channel, formats: Sequence[LinearFormat], key: PrivateKey, *, momentum: float = 0.0
    ) -> None:
        self._peer, self._key = peer, key
        self.blocks = [LinearOwner(peer, format, key, momentum=momentum) for format in formats]

    def open(self, starts: Sequence[Numbers]) -> None:
        """Draw the first shares; the weights begin at this party's start plus the partner's."""
        drawn = [block.draw_share(start) for block, start in zip(self.blocks, starts, strict=True)]
        self._peer.send(OpeningShares(tuple(one for values in drawn for one in values)))

    def score(
        self, shared: Sequence[Numbers], others: Sequence[Numbers], *, trains: bool = False, fits: bool = False
    ) -> None:
        """Let the partner have the logits of rows, by kind for shared ones and added up for others.

        With ``trains`` the codes are sent such that a gradient can follow, and the shares with them; with ``fits``
        such that it can have what estimates of shared rows miss.
        """
        encoded = [block.encode(one) for block, one in zip(self.blocks, shared, strict=True)]
        extra = [block.encode(one) for block, one in zip(self.blocks, others, strict=True)]
        counts = len(shared[0]), len(others[0])
        if trains:
            self._peer.send(SealedShares(tuple(seal(self._key, *(block.laid_out_share() for block in self.blocks)))))
        self._peer.send(self._sealed(encoded, extra, counts, trains, fits))
        opening = Opening(self._peer, MaskedLogits, self._key, kinds=len(self.blocks))
        received = opening.received
        opened = []
        for block, masked, codes in zip(self.blocks, received.shared, encoded, strict=True):
            layout = block.format.logits(counts[0])
            opened.append(opening.masked(masked, layout, own_part(block.own_logits(codes), layout)))
        layout = _summed([block.format for block in self.blocks], counts[1])
        total = sum((block.own_logits(codes) for block, codes in zip(self.blocks, extra, strict=True)), start=0)
        others_opened = opening.masked(received.others, layout, own_part(np.asarray(total), layout))
        self._peer.send(OpenedLogits(tuple(opened), others_opened))

    def learn(self, counts: tuple[int, int], fits: bool, decay: float = 0.0) -> tuple[list[Numbers], list[Numbers]]:
        """Open the masked weight gradient, complete the partner's shares, and return the gradient at all codes.

        With ``fits`` the second list has, for shared rows, what the partner's estimates of the codes miss.
        """
        kinds = len(self.blocks)
        weights = Opening(self._peer, MaskedWeightGradient, self._key, kinds=kinds)
        codes = Opening(self._peer, SealedCodeGradient, self._key, kinds=kinds, fitted=kinds if fits else 0)
        masked, received = weights.received.values, codes.received
        updates = tuple(block.next_update(weights, one, decay) for block, one in zip(self.blocks, masked, strict=True))
        self._peer.send(WeightUpdate(updates))
        rows = sum(counts)
        gradients = [
            codes.fixed(one, block.format.input_gradient(rows)).decode()
            for block, one in zip(self.blocks, received.values, strict=True)
        ]
        missed = [
            codes.fixed(one, _fits(block, counts[0]).sums(counts[0])).decode()
            for block, one in zip(self.blocks, received.fits, strict=bool(fits))
        ]
        return gradients, missed

    def _sealed(
        self,
        shared: Sequence[FixedPoint],
        others: Sequence[FixedPoint],
        counts: tuple[int, int],
        trains: bool,
        fits: bool,
    ) -> SealedCodes:
        groups: list[tuple[Layout, FixedPoint]] = []
        for values, count in ((shared, counts[0]), (others, counts[1])):
            groups += [(block.format.columns(count), one) for block, one in zip(self.blocks, values, strict=True)]
        if trains:
            for block, one, other in zip(self.blocks, shared, others, strict=True):
                whole = FixedPoint(np.concatenate([one.integers, other.integers]), one.fraction_bits, one.bound)
                groups.append((block.format.rows(sum(counts)), whole))
        if fits:
            groups += [(_fits(block, counts[0]).sealed(), one) for block, one in zip(self.blocks, shared, strict=True)]
        arrays = seal(self._key, *groups)
        kinds = len(self.blocks)
        pieces = [tuple(arrays[start : start + kinds]) for start in range(0, len(arrays), kinds)]
        return SealedCodes(pieces[0], pieces[1], pieces[2] if trains else (), pieces[-1] if fits else ())


class SplitPartner(_Split[LinearPartner]):
    """The side that computes on the owner's ciphertexts and holds what the loss needs."""

    def __init__(
        self, peer: Channel, formats: Sequence[LinearFormat], key: PublicKey, *, momentum: float = 0.0
    ) -> None:
        self._peer, self._key = peer, key
        self.blocks = [LinearPartner(peer, format, key, momentum=momentum) for format in formats]
        self.peer = peer.peer
        self._rows: tuple[CipherArray, ...] = ()
        self._keys: tuple[CipherArray, ...] = ()
        self._shares: tuple[CipherArray, ...] = ()

    def open(self, starts: Sequence[Numbers]) -> None:
        """Receive the first shares and add this party's own start to them."""
        received = self._peer.receive(OpeningShares, weights=sum(block.share.size for block in self.blocks)).values
        at = 0
        for block, start in zip(self.blocks, starts, strict=True):
            block.take_share(received[at : at + block.share.size], start)
            at += block.share.size

    def ask(self, counts: tuple[int, int], *, trains: bool = False, fits: bool = False) -> tuple[list[Mask], Mask]:
        """Receive encrypted codes of so many shared and other rows, and ask for their logits."""
        kinds = len(self.blocks)
        if trains:
            shares = self._peer.receive(SealedShares, kinds=kinds).values
            self._shares = tuple(
                one.under(self._key, block.format.shares()) for block, one in zip(self.blocks, shares, strict=True)
            )
        received = self._peer.receive(
            SealedCodes, kinds=kinds, trained=kinds if trains else 0, fitted=kinds if fits else 0
        )
        self._rows = tuple(
            one.under(self._key, block.format.rows(sum(counts)))
            for block, one in zip(self.blocks, received.rows, strict=trains)
        )
        self._keys = tuple(
            one.under(self._key, _fits(block, counts[0]).sealed())
            for block, one in zip(self.blocks, received.keys, strict=fits)
        )
        parts: list[list[CipherArray]] = []
        for arrays, count in ((received.shared, counts[0]), (received.others, counts[1])):
            checked = [
                one.under(self._key, block.format.columns(count))
                for block, one in zip(self.blocks, arrays, strict=True)
            ]
            parts.append([block.own_logits(one) for block, one in zip(self.blocks, checked, strict=True)])
        total = parts[1][0]
        for one in parts[1][1:]:
            total = total + one
        masked = [one.mask() for one in parts[0]]
        others, mask = total.mask()
        self._peer.send(MaskedLogits(tuple(one for one, _ in masked), others))
        return [one for _, one in masked], mask

    def logits(self, masks: tuple[list[Mask], Mask]) -> tuple[list[Numbers], Numbers]:
        """Receive the logits and take off the masks: of shared rows by kind, of others added up."""
        received = self._peer.receive(OpenedLogits, kinds=len(self.blocks))
        shared = [mask.remove(one).decode() for mask, one in zip(masks[0], received.shared, strict=True)]
        others = masks[1].remove(received.others).decode()
        for one in (*shared, others):
            self.blocks[0].check_logits(one)
        return shared, others

    def teach(
        self, slopes: Sequence[Numbers], rate: float, matrices: Sequence[Numbers] = (), decay: float = 0.0
    ) -> None:
        """Send both gradients for slopes at the logits of all rows, by kind, and take the update.

        ``matrices`` say, by kind, how this party's attention among shared rows misses them.
        """
        weights = tuple(
            block.masked_gradient(rows, rate * one)
            for block, rows, one in zip(self.blocks, self._rows, slopes, strict=True)
        )
        codes = tuple(
            block.input_gradient(shares, one)
            for block, shares, one in zip(self.blocks, self._shares, slopes, strict=True)
        )
        fits = tuple(
            fit_sums(len(matrix), codes.shape[1], codes.key.bits).blurred(codes, matrix)
            for codes, matrix in zip(self._keys, matrices, strict=True)
        )
        self._peer.send(MaskedWeightGradient(weights))
        self._peer.send(SealedCodeGradient(codes, fits))
        updates = self._peer.receive(WeightUpdate, kinds=len(self.blocks)).values
        for block, one in zip(self.blocks, updates, strict=True):
            block.take_update(one, decay)


def _summed(formats: Sequence[LinearFormat], rows: int) -> Layout:
    layouts = [format.logits(rows) for format in formats]
    return layouts[0].grown(sum(layout.bound for layout in layouts))
