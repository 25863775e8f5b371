"""A linear layer whose weights neither party knows: one holds the inputs and the key, the other the labels.

After PrADA, algorithms 4 and 5, with the corrections of its errata. The owner holds inputs X (n rows, g columns) and
the key; the partner computes on ciphertexts and holds what the loss needs. The weights W (g by c) are shared, as the
sum of P, which lies with the partner, and E, which lies with the owner. One batch is four messages:

1. owner to partner: what is still missing of the partner's new share, hidden by the owner's (and, when the inputs are
   trained too, the encrypted inputs and the encrypted share E);
2. partner to owner: [[X P]] behind a mask that is uniform over the plaintext ring;
3. owner to partner: the same opened, with X E added: the partner takes off the mask and has the logits X W;
4. partner to owner: the weight gradient, masked (and, when the inputs are trained too, the gradient for the inputs).

The partner multiplies the loss's slopes with the learning rate itself, so that all integers are exact. The owner draws
a new E in every step, so that the partner's share says nothing about W but within 2**-40, and shares do not grow.
Momentum and weight decay are linear, so each side applies them to its own share; only their rounding, in the last of
about 48 fraction bits, depends on the secret shares.

Gradients for the inputs are taken at the weights that made the logits (the paper's line 22 uses the next ones).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.crypto import (
    CipherArray,
    FixedPoint,
    Format,
    Layout,
    Mask,
    PrivateKey,
    PublicKey,
)
from colonnade.errors import CheckpointBroken, TrainingFailed, WrongContent
from colonnade.exchanges.secure_product import Opened, Opening, ask_to_open, open_for, seal, take_opened
from colonnade.messages import (
    ENCRYPTED,
    GIVEN,
    MASKED,
    NOISED,
    PLAIN,
    Between,
    Carries,
    Dims,
    Length,
    Warns,
    by,
    message,
)
from colonnade.session import Channel

__all__ = [
    "LinearFormat",
    "LinearOwner",
    "LinearPartner",
    "MaskedGradient",
    "MaskedLogits",
    "OpenedLogits",
    "OpeningShare",
    "SealedBatch",
    "SealedInputs",
    "ShareUpdate",
    "Shares",
    "TrainedGradients",
    "TrainedInputs",
    "own_part",
]

Integers: TypeAlias = np.ndarray[Any, Any]
Numbers: TypeAlias = npt.NDArray[np.float64]

# Two bits in every slot of the logits beyond what weights within their range can fill, so that weights that leave it
# are noticed and not wrapped.
_GUARD = 4
_FACTOR_BITS = 32


@dataclass(frozen=True, kw_only=True)
class LinearFormat:
    """The ranges and scales of one layer: both parties derive them from the settings, before any value is seen."""

    inputs: int
    outputs: int
    most_rows: int
    """The largest batch."""
    key_bits: int
    input_format: Format = Format(fraction_bits=16, magnitude_bits=4)  # noqa: RUF009 - frozen
    step_format: Format = Format(fraction_bits=32, magnitude_bits=0)  # noqa: RUF009 - frozen
    """For slopes times the learning rate."""
    slope_format: Format = Format(fraction_bits=32, magnitude_bits=0)  # noqa: RUF009 - frozen
    """For slopes in the gradient of trained inputs."""
    weight_magnitude_bits: int = 4
    forward_bits: int = 24
    """Fraction bits of the weights in the logits."""
    noised: bool = False
    """Whether the partner adds noise to the gradient of trained inputs, as large as that gradient may be."""
    summed_inputs: int = 0
    """The inputs of all layers whose logits are added up before they are opened, if there are others than this."""
    hiding_bits: int = 40
    """How much larger a share is than what it hides: it can be told from noise with probability 2**-hiding_bits."""

    @property
    def weight_bits(self) -> int:
        """Return the fraction bits of the weights."""
        return self.input_format.fraction_bits + self.step_format.fraction_bits

    @property
    def share_limit(self) -> int:
        """Return the limit of the owner's share."""
        return 1 << (self.weight_bits + self.weight_magnitude_bits + self.hiding_bits)

    @property
    def forward_bound(self) -> int:
        """Return the limit of the weights in the logits."""
        return 1 << (self.forward_bits + self.weight_magnitude_bits)

    @property
    def update_bound(self) -> int:
        """Return the limit of what completes the partner's share: a gradient and a few of the owner's shares."""
        gradient = self.input_format.bound * self.step_format.bound * max(self.most_rows, 1)
        return gradient + 8 * self.share_limit

    def columns(self, rows: int) -> Layout:
        """Lay out inputs for the logits: neighbours in a column share a ciphertext."""
        room = self.forward_bound * max(self.inputs, self.summed_inputs, 1) * _GUARD
        return self._plan((rows, self.inputs), 0, self.input_format, room)

    def logits(self, rows: int) -> Layout:
        """Lay out the logits, without the owner's part."""
        product = self.columns(rows).times(self.forward_bound, self.forward_bits, self.inputs, is_share=True)
        return replace(product, shape=(rows, self.outputs), packed_axis=0)

    def rows(self, rows: int) -> Layout:
        """Lay out inputs for the gradient: neighbours in a row share a ciphertext."""
        room = -(-self.update_bound // self.input_format.bound)
        return self._plan((rows, self.inputs), 1, self.input_format, room)

    def gradient(self) -> Layout:
        """Lay out the weight gradient, with room for the owner's shares."""
        one_row = self.rows(1)
        scale = self.weight_bits
        return replace(one_row, shape=(self.outputs, self.inputs), fraction_bits=scale, bound=self.update_bound)

    def shares(self) -> Layout:
        """Lay out the owner's share, for the gradient of the inputs."""
        plan = Layout.plan(
            (self.outputs, self.inputs),
            1,
            modulus_bits=self.key_bits,
            fraction_bits=self.forward_bits,
            bound=self.forward_bound,
            room=self.slope_format.bound * self.outputs * (2 if self.noised else 1),
        )
        return replace(plan, is_share=True)

    def input_gradient(self, rows: int) -> Layout:
        """Lay out the gradient for the inputs: as many rows in a ciphertext as fit."""
        whole = replace(self.shares(), is_share=False)
        product = whole.times(self.slope_format.bound, self.slope_format.fraction_bits, self.outputs)
        product = product.grown(2 * product.bound) if self.noised else product
        return replace(product, shape=(rows, self.inputs), packed_axis=1).dense

    def _plan(self, shape: tuple[int, ...], axis: int, format: Format, room: int) -> Layout:
        return Layout.plan(
            shape,
            axis,
            modulus_bits=self.key_bits,
            fraction_bits=format.fraction_bits,
            bound=format.bound,
            room=room,
        )


Shares: TypeAlias = Annotated[tuple[int, ...], Length("weights", "weights"), Between("least_share", "most_share")]
Inputs: TypeAlias = Annotated[CipherArray, Dims("rows", "inputs")]
Weights: TypeAlias = Annotated[CipherArray, Dims("outputs", "inputs")]


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="set-up", carries=Carries.SHARE)
class OpeningShare:
    """The receiver's share of the initial weights. Reveals: nothing; it is hidden by the sender's own share."""

    values: Shares


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="PrADA Alg. 4, line 4", carries=Carries.ROW_CODE)
class SealedInputs:
    """The sender's inputs for one batch, packed by column and by row. Reveals: how many rows and columns."""

    columns: Inputs
    rows: Inputs | None


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="PrADA Alg. 4, line 8", carries=Carries.ROW_SCORE)
class MaskedLogits:
    """The sender's part of the logits, behind a uniform mask. Reveals: nothing but the size of the batch."""

    values: Annotated[CipherArray, Dims("rows", "outputs")]


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="PrADA Alg. 4, line 12", carries=Carries.ROW_SCORE)
class OpenedLogits:
    """The logits of one batch, behind the receiver's own mask.

    Reveals: the sender's contribution to the score of every row of the batch. Over many epochs these span the sender's
    inputs up to an unknown linear map.
    """

    values: Opened


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="PrADA Alg. 5, line 8", carries=Carries.WEIGHTS)
class MaskedGradient:
    """The gradient of the shared weights, behind a uniform mask. Reveals: nothing."""

    values: Weights


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="PrADA Alg. 5, line 14", carries=Carries.SHARE)
class ShareUpdate:
    """What completes the receiver's share of the next weights. Reveals: nothing; the sender's share hides it."""

    values: Opened


@message(
    sender=GIVEN,
    receiver=GIVEN,
    protection=MASKED,
    step="PrADA Alg. 4, line 4",
    carries=Carries.ROW_CODE | Carries.SHARE,
)
class TrainedInputs:
    """The inputs of one batch, the sender's share of the weights, both encrypted, and the last share update.

    Reveals: how many rows and columns; the update is hidden by the sender's share.
    """

    columns: Inputs
    rows: Inputs
    shares: Weights
    update: Opened | None


@message(
    sender=GIVEN,
    receiver=GIVEN,
    protection=by("defence", {"none": PLAIN, "coae": PLAIN, "marvell": NOISED, "marvell+coae": NOISED}),
    step="PrADA Alg. 5, lines 8 and 22",
    carries=Carries.ROW_GRADIENT | Carries.WEIGHTS,
    warns=Warns.LABELS,
)
class TrainedGradients:
    """The gradient of the shared weights, masked, and the gradient at the receiver's inputs.

    Reveals: the gradient at the inputs, whose rows are multiples of the weights: from it the receiver can read the
    weights and the label of every row of the batch. Codes of classes (coae) hide little of it by themselves.
    Reveals when NOISED: the weights about, and of the label of each row no more than the sender's label budget allows
    in one release. Every epoch is a further release, and their budgets add up.
    """

    weights: Weights
    inputs: Inputs


class _Half:
    """What both sides of the layer do alike: hold a share and its momentum, and scale them."""

    def __init__(self, format: LinearFormat, momentum: float) -> None:
        self.format = format
        self._momentum = momentum
        self.share: Integers = np.zeros((format.inputs, format.outputs), dtype=object)
        self._velocity: Integers = np.zeros((format.inputs, format.outputs), dtype=object)

    def extents(self, rows: int = 0) -> dict[str, int]:
        """Return what messages about the layer are checked by."""
        inputs, outputs = self.format.inputs, self.format.outputs
        # Weights, which a share is a difference to, are far smaller than shares.
        most = 2 * self.format.share_limit
        shares = {"weights": inputs * outputs, "least_share": -most, "most_share": most}
        return {"rows": rows, "inputs": inputs, "outputs": outputs, **shares}

    def _carried(self, decay: float) -> Integers:
        """Return this side's part of what momentum and weight decay add to the next step."""
        return _scaled(self._velocity, self._momentum) + _scaled(self.share, decay)

    def _forward_share(self) -> FixedPoint:
        """Return the share as the logits take it."""
        format = self.format
        dropped = format.weight_bits - format.forward_bits
        half = 1 << (dropped - 1) if dropped else 0
        return FixedPoint.share((self.share + half) >> dropped, format.forward_bits, format.forward_bound)

    def state(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """Return the share and its momentum for a checkpoint: no tensors, as the integers are long."""
        return {}, {"share": _to_texts(self.share), "velocity": _to_texts(self._velocity)}

    def load_state(self, tensors: Mapping[str, Any], document: Mapping[str, list[str]]) -> None:
        """Go on from a checkpoint."""
        self.share = _from_texts(document["share"], self.share.shape)
        self._velocity = _from_texts(document["velocity"], self._velocity.shape)


class LinearOwner(_Half):
    """The side that holds the inputs and the key."""

    def __init__(self, peer: Channel, format: LinearFormat, key: PrivateKey, *, momentum: float = 0.0) -> None:
        super().__init__(format, momentum)
        self._peer, self._key = peer, key
        self._update: np.ndarray[Any, Any] | None = None

    def open(self, own_start: Numbers | None = None) -> None:
        """Draw the first share; the weights begin at this party's start plus the partner's, by default at zero."""
        self._peer.send(OpeningShare(self.draw_share(own_start)))

    def draw_share(self, own_start: Numbers | None) -> tuple[int, ...]:
        """Draw the first share and return the partner's."""
        start = _as_integers(own_start, self.share.shape, self.format.weight_bits)
        self.share = self._draw()
        return tuple(int(one) for one in (start - self.share).reshape(-1))

    def encode(self, inputs: Numbers) -> FixedPoint:
        """Round inputs to the layer's format."""
        return FixedPoint.encode(inputs, self.format.input_format)

    def send_inputs(self, inputs: FixedPoint, *, trains: bool = True) -> None:
        """Encrypt inputs that do not change and send them, for any number of batches to come."""
        count = len(inputs.integers)
        layouts = (self.format.columns(count), *([self.format.rows(count)] if trains else []))
        columns, *rows = seal(self._key, *((layout, inputs) for layout in layouts))
        self._peer.send(SealedInputs(columns, rows[0] if rows else None))

    def send_trained_inputs(self, inputs: FixedPoint) -> None:
        """Encrypt this batch's inputs and the share, and send both with the update that is due."""
        count = len(inputs.integers)
        columns, rows, shares = seal(
            self._key, (self.format.columns(count), inputs), (self.format.rows(count), inputs), self.laid_out_share()
        )
        self._peer.send(TrainedInputs(columns, rows, shares, self._update))
        self._update = None

    def answer(self, inputs: FixedPoint, masked: type = MaskedLogits, opened: type = OpenedLogits) -> None:
        """Open the masked logits of these inputs, complete them and return them."""
        rows = len(inputs.integers)
        layout, own = self.format.logits(rows), self.own_logits(inputs)
        open_for(self._peer, masked, opened, self._key, layout, own_part(own, layout), **self.extents(rows))

    def laid_out_share(self) -> tuple[Layout, FixedPoint]:
        """Return the share as it is encrypted for the gradient at inputs."""
        return self.format.shares(), self._forward_share().T

    def own_logits(self, inputs: FixedPoint) -> Integers:
        """Return what this party's share adds to the logits of inputs."""
        found: Integers = inputs.integers.astype(object) @ self._forward_share().integers
        return found

    def learn(self, decay: float = 0.0) -> None:
        """Open the masked weight gradient, draw a new share and return what completes the partner's.

        ``decay`` is the learning rate times the weight decay; both sides must take the same.
        """
        opening = Opening(self._peer, MaskedGradient, self._key, **self.extents())
        self._peer.send(ShareUpdate(self.next_update(opening, opening.received.values, decay)))

    def learn_with_inputs(self, rows: int, decay: float = 0.0) -> Numbers:
        """Do the same, leave the update for the next inputs, and return the gradient at the inputs."""
        opening = Opening(self._peer, TrainedGradients, self._key, **self.extents(rows))
        self._update = self.next_update(opening, opening.received.weights, decay)
        return opening.fixed(opening.received.inputs, self.format.input_gradient(rows)).decode()

    def send_last_update(self) -> None:
        """Send the update that no further inputs will carry."""
        if self._update is not None:
            self._peer.send(ShareUpdate(self._update))
            self._update = None

    def next_update(self, opening: Opening, masked: CipherArray, decay: float) -> Integers:
        """Draw the next share, and return the opened weight gradient with what completes the partner's."""
        layout = self.format.gradient()
        fresh = self._draw()
        velocity = self.share - fresh
        missing = self._carried(decay) - velocity
        opened = opening.masked(masked, layout, own_part(missing.T, layout))
        self.share, self._velocity = fresh, velocity
        return opened

    def _draw(self) -> Integers:
        limit = self.format.share_limit
        drawn = [secrets.randbelow(2 * limit) - limit for _ in range(self.share.size)]
        return np.array(drawn, dtype=object).reshape(self.share.shape)


@dataclass(frozen=True, repr=False)
class SealedBatch:
    """One batch of the owner's inputs, as the partner keeps it."""

    columns: CipherArray
    rows: CipherArray | None
    shares: CipherArray | None = None


class LinearPartner(_Half):
    """The side that computes on the owner's ciphertexts."""

    def __init__(self, peer: Channel, format: LinearFormat, key: PublicKey, *, momentum: float = 0.0) -> None:
        super().__init__(format, momentum)
        self._peer, self._key = peer, key
        self._mask: Mask | None = None

    def open(self, own_start: Numbers | None = None) -> None:
        """Receive the first share and add this party's own start to it."""
        self.take_share(self._peer.receive(OpeningShare, **self.extents()).values, own_start)

    def take_share(self, values: Sequence[int], own_start: Numbers | None) -> None:
        """Add this party's own start to its first share."""
        start = _as_integers(own_start, self.share.shape, self.format.weight_bits)
        self.share = start + np.array(values, dtype=object).reshape(self.share.shape)

    def receive_inputs(self, rows: int, *, trains: bool = True) -> SealedBatch:
        """Receive inputs that do not change."""
        received = self._peer.receive(SealedInputs, **self.extents(rows))
        if (received.rows is not None) != trains:
            raise WrongContent(f"'{self._peer.peer}' sent inputs packed for another use than agreed.")
        columns = received.columns.under(self._key, self.format.columns(rows))
        in_rows = None if received.rows is None else received.rows.under(self._key, self.format.rows(rows))
        return SealedBatch(columns, in_rows)

    def receive_trained_inputs(self, rows: int, decay: float = 0.0) -> SealedBatch:
        """Receive this batch's inputs, and the update of the step before that came with them."""
        received = self._peer.receive(TrainedInputs, **self.extents(rows), **self._due())
        if (received.update is not None) != (self._mask is not None):
            raise WrongContent(f"'{self._peer.peer}' sent a share update where none was due, or none where one was.")
        if received.update is not None:
            self.take_update(received.update, decay)
        return SealedBatch(
            received.columns.under(self._key, self.format.columns(rows)),
            received.rows.under(self._key, self.format.rows(rows)),
            received.shares.under(self._key, self.format.shares()),
        )

    def ask(self, batch: SealedBatch, masked: type = MaskedLogits) -> Mask:
        """Send this party's part of the logits, masked."""
        return ask_to_open(self._peer, masked, self.own_logits(batch.columns))

    def own_logits(self, columns: CipherArray) -> CipherArray:
        """Return what this party's share adds to the logits of inputs."""
        return columns @ self._forward_share()

    def logits(self, mask: Mask, opened: type = OpenedLogits) -> Numbers:
        """Receive the logits and take off the mask."""
        found = take_opened(self._peer, opened, mask).decode()
        self.check_logits(found)
        return found

    def check_logits(self, found: Numbers) -> None:
        """Refuse logits so large that weights are about to leave their range."""
        if found.size and np.abs(found).max() > 2.0 ** (self.format.weight_magnitude_bits + 4):
            raise TrainingFailed(
                f"Training diverged: the scores with '{self._peer.peer}' have become too large to be encrypted. Where "
                "the method has a learning_rate or a head_rate, lower it; else look for a column that nearly tells the "
                "label."
            )

    def teach(self, batch: SealedBatch, steps: Numbers) -> None:
        """Send the weight gradient for slopes times the learning rate, masked."""
        self._peer.send(MaskedGradient(self.masked_gradient(batch.rows, steps)))

    def teach_with_inputs(
        self, batch: SealedBatch, steps: Numbers, slopes: Numbers, noise: Numbers | None = None
    ) -> None:
        """Send the weight gradient, masked, and the gradient at the inputs for slopes that may carry noise.

        Rows of that gradient are whole multiples of the weights, so that the owner can work these out exactly, and from
        their steps sums over the true slopes. ``noise``, of the gradient's shape, prevents that.
        """
        if batch.shares is None or (self.format.noised and noise is None):
            raise RuntimeError("A gradient at inputs needs the owner's share, and noise where the format has it.")
        masked = self.masked_gradient(batch.rows, steps)
        self._peer.send(TrainedGradients(masked, self.input_gradient(batch.shares, slopes, noise)))

    def input_gradient(self, shares: CipherArray, slopes: Numbers, noise: Numbers | None = None) -> CipherArray:
        """Return the gradient at the inputs, by the owner's encrypted share."""
        weights = shares.add_share(self._forward_share().T)
        gradient = weights.left_product(FixedPoint.encode(slopes, self.format.slope_format), dense=True)
        if self.format.noised and noise is not None:
            layout = self.format.input_gradient(len(slopes))
            drawn = np.clip(noise, -1.0, 1.0) * 2.0**layout.fraction_bits
            integers = np.array([int(one) for one in np.rint(drawn).reshape(-1)], dtype=object).reshape(noise.shape)
            gradient = gradient + FixedPoint(integers, layout.fraction_bits, layout.bound // 2)
        return gradient.rerandomise()

    def receive_update(self, decay: float = 0.0) -> None:
        """Receive what completes this party's share of the next weights."""
        self.take_update(self._peer.receive(ShareUpdate, **self._due()).values, decay)

    def masked_gradient(self, rows: CipherArray | None, steps: Numbers) -> CipherArray:
        """Return the weight gradient behind a mask that is kept for the update."""
        if rows is None:
            raise RuntimeError("These inputs were asked for to be scored only.")
        product = FixedPoint.encode(steps, self.format.step_format).T @ rows
        masked, self._mask = product.widened(self.format.update_bound).mask()
        return masked

    def _due(self) -> dict[str, int]:
        """Return the size of the update that is due."""
        return {"ciphertexts": self.format.gradient().count, "modulus_bytes": self._key.width}

    def take_update(self, opened: Integers, decay: float) -> None:
        """Complete this party's share of the next weights."""
        if self._mask is None:
            raise RuntimeError("No share update is due.")
        received = self._mask.remove(opened).integers.T
        self._velocity = self._carried(decay) + received.astype(object)
        self.share = self.share - self._velocity
        self._mask = None


def own_part(integers: Integers, layout: Layout) -> FixedPoint:
    """Take what this party adds to a masked array: its share of the numbers, or a number that leaves room for it."""
    return FixedPoint(integers.astype(object), layout.fraction_bits, layout.bound, layout.is_share)


def _scaled(share: Integers, factor: float) -> Integers:
    """Multiply a share with a factor below 1, rounded: the two sides' roundings add up to one unit at most."""
    whole = round(factor * (1 << _FACTOR_BITS))
    if not whole:
        return np.zeros(share.shape, dtype=object)
    return (share * whole + (1 << (_FACTOR_BITS - 1))) >> _FACTOR_BITS


def _as_integers(values: Numbers | None, shape: tuple[int, ...], fraction_bits: int) -> Integers:
    if values is None:
        return np.zeros(shape, dtype=object)
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), fraction_bits))
    return np.array([int(one) for one in scaled.reshape(-1)], dtype=object).reshape(shape)


def _to_texts(integers: Integers) -> list[str]:
    return [str(one) for one in integers.reshape(-1)]


def _from_texts(texts: list[str], shape: tuple[int, ...]) -> Integers:
    try:
        return np.array([int(one) for one in texts], dtype=object).reshape(shape)
    except ValueError:
        raise CheckpointBroken("The shares in a checkpoint do not fit the weights of this run.") from None
