"""Let a collaborator learn the sum of several parties' numbers and nothing else about them.

1. Every two holders agree on a key, once per attempt at a run: each sends its public part to all others.
2. For every sum, each holder rounds its numbers to words modulo 2**64, adds a mask for every holder after it in the
   plan, subtracts one for every holder before it, and sends the result to the collaborator.
3. The collaborator adds everything up. The masks cancel, and the sum of the numbers is left.

What a holder sends is uniform for everyone who lacks one of its keys. The collaborator must not side with holders: with
all but two of them it still learns no more than the sum of those two, with all but one it learns that one's numbers.
A single holder has nobody to agree with: its numbers are the sum, and cross without a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.pairwise_masks import MaskPair, MaskSecret, PairwiseMasks
from colonnade.crypto.ring import FRACTION_BITS, Ring, RingEncoder, Words
from colonnade.errors import ConfigError, OutOfRange
from colonnade.messages import GIVEN, MASKED, PLAIN, Carries, Dims, Length, Template, between, message
from colonnade.session import Channel, Session

if TYPE_CHECKING:
    import torch

__all__ = ["COLLABORATOR", "Collector", "Contributor", "MaskKey", "MaskedValues", "masked_sum_messages"]

COLLABORATOR = "collaborator"


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="set-up", carries=Carries.KEY)
class MaskKey:
    """The public part of the sender's key for masks, which is drawn anew at every attempt at a run.

    Reveals: nothing about any table.
    """

    public: Annotated[bytes, Length(32, 32)]


@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="masked sum", carries=Carries.SHARE)
class MaskedValues:
    """The sender's part of a sum, behind masks that cancel with those of all other holders.

    Reveals: how many numbers there are; and, once all holders' parts are added, their sum, such as the inputs of the
    first hidden layer: of rows to which one holder alone contributes, its numbers. From the sums of the same rows over
    many steps, and the gradients it computed itself, the receiver can work out how alike rows are.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("summed", kind="u")]


def masked_sum_messages(holders: tuple[str, ...], collaborator: str = COLLABORATOR) -> tuple[Template, Template]:
    """Return both messages of a sum between a method's roles."""
    return between(MaskKey, holders, holders, same_role=True), between(MaskedValues, holders, collaborator)


class Contributor:
    """A holder's side: every part it sends takes the next mask."""

    def __init__(self, collaborator: Channel, masks: PairwiseMasks, ring: Ring) -> None:
        self._channel, self._masks, self._encoder = collaborator, masks, RingEncoder(ring)
        self.ring = ring

    @classmethod
    def agree(
        cls,
        session: Session,
        *,
        collaborator: str = COLLABORATOR,
        purpose: str = "sum",
        fraction_bits: int = FRACTION_BITS,
    ) -> Contributor:
        """Agree on masks with all other holders. All of them call this at the same time, again at every attempt.

        With one holder there is nobody to agree with, and nothing is masked.
        """
        pairs = _agree(session, collaborator)
        # The ledger says with how many others masks were agreed: with none, what follows is not hidden.
        session.ledger.mark("masks", partners=len(pairs), purpose=purpose)
        ring = Ring(len(pairs) + 1, fraction_bits)
        return cls(session.channel(collaborator), PairwiseMasks(pairs, purpose), ring)

    def send(self, values: np.ndarray[Any, Any] | torch.Tensor) -> None:
        """Send this holder's numbers as its part of the next sum."""
        array = values if isinstance(values, np.ndarray) else values.numpy(force=True)
        self._send(self._encoder.encode(array))

    def send_words(self, words: Words) -> None:
        """Send words that are in the ring already, such as shares; they add up as numbers do."""
        if words.dtype != np.uint64:
            raise OutOfRange(f"An array of type {words.dtype} does not hold words of the ring. Use uint64.")
        self._send(words.copy())

    def _send(self, words: Words) -> None:
        self._masks.hide(words)
        self._channel.send(MaskedValues(words))


class Collector:
    """The collaborator's side: it adds up one part of every holder."""

    def __init__(self, session: Session, *, fraction_bits: int = FRACTION_BITS) -> None:
        holders = [party for party in session.plan.parties if party != session.party]
        self._channels = _channels_to(session, holders)
        self.ring = Ring(len(holders), fraction_bits)
        self._sum: Words = np.empty(0, np.uint64)

    def receive(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return the next sum over all holders."""
        return self.ring.decode(self.receive_words(shape))

    def receive_words(self, shape: tuple[int, ...]) -> Words:
        """Return the next sum over all holders, as words of the ring; the next call overwrites them."""
        if self._sum.shape != shape:
            self._sum = np.empty(shape, np.uint64)
        total: Words | None = None
        for channel in self._channels:
            part = channel.receive(MaskedValues, summed=shape).values.astype(np.uint64, copy=False)
            total = part if total is None else np.add(total, part, out=self._sum)
        return np.zeros(shape, np.uint64) if total is None else total


def _agree(session: Session, collaborator: str) -> list[MaskPair]:
    parties = session.plan.parties
    holders = [party for party in parties if session.plan.role_of(party) != collaborator]
    peers = _channels_to(session, [party for party in holders if party != session.party])
    secret = MaskSecret()
    # All are sent before any is awaited, so no order of holders can make them wait for one another.
    for peer in peers:
        peer.send(MaskKey(secret.public))
    run, place = session.plan.digest(), parties.index(session.party)
    pairs = []
    for peer in peers:
        offered = peer.receive(MaskKey).public
        pairs.append(secret.agree(run, session.party, peer.peer, offered, adds=place < parties.index(peer.peer)))
    return pairs


def _channels_to(session: Session, parties: list[str]) -> list[Channel]:
    known = {channel.peer: channel for channel in session.all_channels}
    missing = [party for party in parties if party not in known]
    if missing:
        # Without one of them the masks would not cancel, or not cover everyone.
        raise ConfigError(
            f"'{session.party}' has no channel to {', '.join(missing)}, but every two holders must agree on masks. "
            "Let all parties of this run reach one another."
        )
    return [known[party] for party in parties]
