"""The secure linear layer against plain arithmetic, and what each side sees of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import pytest
from scipy import stats
from tests.worlds import name_of

from colonnade.crypto import CipherArray, FixedPoint, Format, PrivateKey, PublicKey, key_bits
from colonnade.errors import CiphertextRefused, OutOfRange, TrainingFailed, WrongContent
from colonnade.exchanges.secure_linear import (
    LinearFormat,
    LinearOwner,
    LinearPartner,
    MaskedGradient,
    MaskedLogits,
    OpenedLogits,
    OpeningShare,
    SealedInputs,
    ShareUpdate,
    TrainedGradients,
    TrainedInputs,
)
from colonnade.ledger import LedgerWriter
from colonnade.messages import between, resolve
from colonnade.session import Channel, Policy
from colonnade.transport import MemoryHub

OWNERS, PARTNERS = "feature_holder", "label_holder"
EVERY = (
    *(between(one, OWNERS, PARTNERS) for one in (OpeningShare, SealedInputs, TrainedInputs, OpenedLogits, ShareUpdate)),
    *(between(one, PARTNERS, OWNERS) for one in (MaskedLogits, MaskedGradient, TrainedGradients)),
)
PLAN: Any = SimpleNamespace(config={"defence": "none"})
SIZE = "insecure_test"


def weights_of(owner: LinearOwner, partner: LinearPartner) -> np.ndarray:
    return (owner.share + partner.share).astype(np.float64) * 2.0**-owner.format.weight_bits


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate(SIZE)


@pytest.fixture(scope="module")
def public(key: PrivateKey) -> PublicKey:
    return key.public


class Line:
    """Two channels between an owner and a partner, and what each of them received."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Any]] = {"owner": [], "partner": []}
        hub = MemoryHub(("owner", "partner"))
        roles = {"owner": "feature_holder", "partner": "label_holder"}
        self.channels = {}
        for party, peer in (("owner", "partner"), ("partner", "owner")):
            channel = Channel(
                hub.link(party, peer),
                party=party,
                role=roles[party],
                peer=peer,
                peer_role=roles[peer],
                run="run",
                declarations=resolve(EVERY, PLAN),
                ledger=LedgerWriter(),
                policy=Policy(),
                step=itertools.count(1).__next__,
            )
            self.channels[party] = channel
            channel.receive = self._keeping(party, channel.receive)  # type: ignore[method-assign]

    def _keeping(self, party: str, receive: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*arguments: Any, **options: Any) -> Any:
            message = receive(*arguments, **options)
            self.seen[party].append(message)
            return message

        return kept

    def play(self, owner: Callable[[], Any], partner: Callable[[], Any]) -> tuple[Any, Any]:
        """Run both sides and return what they return."""
        found: dict[str, Any] = {}

        def run() -> None:
            try:
                found["owner"] = owner()
            except BaseException as error:
                found["error"] = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            found["partner"] = partner()
        finally:
            thread.join(timeout=60)
        if "error" in found:
            raise found["error"]
        return found["owner"], found["partner"]


def layer(
    line: Line, key: PrivateKey, public: PublicKey, momentum: float = 0.0, **changes: Any
) -> tuple[LinearOwner, LinearPartner]:
    facts = {"inputs": 3, "outputs": 1, "most_rows": 8, "key_bits": key_bits(SIZE), **changes}
    format = LinearFormat(**facts)
    return (
        LinearOwner(line.channels["owner"], format, key, momentum=momentum),
        LinearPartner(line.channels["partner"], format, public, momentum=momentum),
    )


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize(("rate", "momentum", "decay"), [(0.05, 0.0, 0.0), (0.05, 0.9, 1e-3), (1.0, 0.0, 0.0)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_trained_inputs_give_the_gradients_of_plain_training(
    key: PrivateKey, public: PublicKey, rate: float, momentum: float, decay: float, outputs: int
) -> None:
    """At a rate of 1 the weights move so far that a gradient taken at the next weights would be seen at once."""
    generator = np.random.default_rng(1)
    batches = [(generator.normal(size=(7, 3)), generator.integers(0, 2, size=(7, outputs))) for _ in range(20)]
    start = [generator.normal(size=(3, outputs)) * 0.05 for _ in range(2)]
    line = Line()
    owner, partner = layer(line, key, public, momentum, outputs=outputs)

    def own() -> list[np.ndarray]:
        owner.open(start[0])
        found = []
        for inputs, _ in batches:
            encoded = owner.encode(inputs)
            owner.send_trained_inputs(encoded)
            owner.answer(encoded)
            found.append(owner.learn_with_inputs(len(inputs), decay))
        owner.send_last_update()
        return found

    def compute() -> list[np.ndarray]:
        partner.open(start[1])
        found = []
        for inputs, labels in batches:
            batch = partner.receive_trained_inputs(len(inputs), decay)
            logits = partner.logits(partner.ask(batch))
            slopes = (sigmoid(logits) - labels) / len(inputs)
            partner.teach_with_inputs(batch, rate * slopes, slopes)
            found.append(logits)
        partner.receive_update(decay)
        return found

    gradients, logits = line.play(own, compute)
    weights, speed = start[0] + start[1], np.zeros((3, outputs))
    for (inputs, labels), gradient, seen in zip(batches, gradients, logits, strict=True):
        assert np.abs(seen - inputs @ weights).max() < 5e-5
        slopes = (sigmoid(inputs @ weights) - labels) / len(inputs)
        assert np.abs(gradient - slopes @ weights.T).max() < 5e-5
        speed = momentum * speed + rate * inputs.T @ slopes + decay * weights
        weights = weights - speed
    assert np.abs(weights_of(owner, partner) - weights).max() < 5e-5


def test_shares_add_up_to_the_integer_twin_for_a_thousand_batches_and_do_not_grow(
    key: PrivateKey, public: PublicKey
) -> None:
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=(4, 2))
    slopes = generator.normal(size=(1000, 4, 1)) * 1e-3
    line = Line()
    owner, partner = layer(line, key, public, inputs=2, most_rows=4)
    encoded = owner.encode(inputs)
    shares = []

    def own() -> None:
        owner.open()
        owner.send_inputs(encoded)
        for _ in slopes:
            owner.learn()
            shares.append(owner.share)

    def compute() -> list[np.ndarray]:
        partner.open()
        batch = partner.receive_inputs(4)
        held = []
        for one in slopes:
            partner.teach(batch, one)
            partner.receive_update()
            held.append(partner.share)
        return held

    _, held = line.play(own, compute)
    twin = np.zeros((2, 1), dtype=object)
    limit = owner.format.share_limit
    for one, share, other in zip(slopes, shares, held, strict=True):
        steps = FixedPoint.encode(one, owner.format.step_format).integers.astype(object)
        twin = twin - encoded.integers.astype(object).T @ steps
        assert (share + other == twin).all()
        assert all(abs(value) <= limit for value in share.reshape(-1))


def one_batch(
    line: Line, owner: LinearOwner, partner: LinearPartner, inputs: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    def own() -> np.ndarray:
        encoded = owner.encode(inputs)
        owner.open()
        owner.send_trained_inputs(encoded)
        owner.answer(encoded)
        return owner.learn_with_inputs(len(inputs))

    def compute() -> None:
        partner.open()
        batch = partner.receive_trained_inputs(len(inputs))
        partner.logits(partner.ask(batch))
        partner.teach_with_inputs(batch, slopes, slopes)

    return line.play(own, compute)[0]


def test_each_side_sees_only_the_declared_messages(key: PrivateKey, public: PublicKey) -> None:
    line = Line()
    owner, partner = layer(line, key, public)
    one_batch(line, owner, partner, np.ones((5, 3)), np.full((5, 1), 0.25))
    names = {side: [name_of(one) for one in seen] for side, seen in line.seen.items()}
    assert names["partner"] == ["OpeningShare", "TrainedInputs", "OpenedLogits"]
    assert names["owner"] == ["MaskedLogits", "TrainedGradients"]
    openings = line.channels["owner"].openings
    # The weights' gradient and that at the inputs come in one message.
    assert openings.counts == {"MaskedLogits": 1, "TrainedGradients": 1}
    assert openings.numbers == {"MaskedLogits": 5, "TrainedGradients": 3 + 5 * 3}
    assert not line.channels["partner"].openings.counts


def test_a_batch_of_the_paper_takes_four_messages_and_fewer_ciphertexts_than_the_sheet() -> None:
    format = LinearFormat(inputs=10, outputs=1, most_rows=128, key_bits=2048)
    from_owner = format.columns(128).count + format.rows(128).count + format.shares().count
    from_partner = format.logits(128).count + format.gradient().count + format.input_gradient(128).count
    # The sheet packs logits into slots for the partner's large shares and needs 199 and 72 ciphertexts.
    assert (from_owner, from_partner) == (40 + 128 + 1, 4 + 1 + 43)


@pytest.mark.parametrize("field", ["MaskedLogits", "MaskedGradient"])
def test_what_the_owner_can_decrypt_is_uniform(key: PrivateKey, public: PublicKey, field: str) -> None:
    found = []
    for _ in range(12):
        line = Line()
        owner, partner = layer(line, key, public, inputs=2, most_rows=60)
        encoded = owner.encode(np.zeros((60, 2)))

        def own(owner: LinearOwner = owner, encoded: FixedPoint = encoded) -> None:
            owner.open()
            owner.send_inputs(encoded)
            for _ in range(4):
                owner.answer(encoded)
                owner.learn()

        def compute(partner: LinearPartner = partner) -> None:
            partner.open()
            batch = partner.receive_inputs(60)
            for _ in range(4):
                partner.logits(partner.ask(batch))
                partner.teach(batch, np.zeros((60, 1)))
                partner.receive_update()

        line.play(own, compute)
        for message in line.seen["owner"]:
            if name_of(message) == field:
                found += key.decrypt_integers(message.values.ciphertexts)
    assert len(found) >= 48
    # By the top four bits of the value modulo n, and by its lowest four.
    tops = np.bincount([int(16 * one // key.n) for one in found], minlength=16)
    lows = np.bincount([int(one & 15) for one in found], minlength=16)
    for counts in (tops, lows):
        assert stats.chisquare(counts).pvalue > 1e-4
    assert len(set(found)) == len(found)


def test_the_partners_share_does_not_tell_the_weights(key: PrivateKey, public: PublicKey) -> None:
    samples = []
    for start in (0.0, 15.0):
        line = Line()
        owner, partner = layer(line, key, public, inputs=5000)
        line.play(lambda owner=owner, start=start: owner.open(np.full((5000, 1), start)), partner.open)
        samples.append([float(one) for one in partner.share.reshape(-1)])
    assert stats.ks_2samp(*samples).pvalue > 1e-3


def random_part(key: PrivateKey, ciphertext: Any) -> Any:
    """Extract, as only the key's owner can, the randomness of a ciphertext."""
    p, q = key._p, key._q
    order = gmpy2.lcm(p - 1, q - 1)
    return gmpy2.powmod(ciphertext % key.n, gmpy2.invert(key.n, order), key.n)


@pytest.mark.parametrize("careless", [False, True])
def test_the_owner_cannot_read_slopes_from_the_randomness_it_knows(
    key: PrivateKey, public: PublicKey, careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sheet's attack, which must work on replies that were not re-randomised, or this test shows nothing."""
    if careless:
        monkeypatch.setattr(CipherArray, "rerandomise", lambda array: array)
    line = Line()
    owner, partner = layer(line, key, public, slope_format=Format(fraction_bits=8, magnitude_bits=0))
    slopes = np.array([[0.25], [-0.5], [0.125]])
    one_batch(line, owner, partner, np.ones((3, 3)), slopes)
    shares = next(one for one in line.seen["partner"] if name_of(one) == "TrainedInputs").shares
    reply = line.seen["owner"][-1].inputs
    lines = owner.format.input_gradient(3).lines
    known, answer = random_part(key, shares.ciphertexts[0]), random_part(key, reply.ciphertexts[0])
    shift = 1 << (owner.format.shares().slot_bits * 3)
    # The owner tries every slope of the first row; those of the other rows in the same ciphertext it gets likewise.
    rest = sum(int(slope * 256) * shift**place for place, slope in list(enumerate(slopes[:, 0]))[1:lines])
    hits = [guess for guess in range(-256, 257) if gmpy2.powmod(known, guess + rest, key.n) == answer]
    assert hits == ([64] if careless else [])


def test_the_same_batch_twice_gives_different_bytes(key: PrivateKey, public: PublicKey) -> None:
    replies = []
    for _ in range(2):
        line = Line()
        owner, partner = layer(line, key, public)
        one_batch(line, owner, partner, np.ones((2, 3)), np.full((2, 1), 0.5))
        replies.append([field.to_bytes() for one in line.seen["owner"] for field in vars(one).values()])
    assert all(first != second for first, second in zip(*replies, strict=True))


class TestLyingPeers:
    def test_an_owner_that_opens_something_else_is_noticed(self, key: PrivateKey, public: PublicKey) -> None:
        line = Line()
        owner, partner = layer(line, key, public)
        encoded = owner.encode(np.ones((2, 3)))

        def own() -> None:
            owner.open()
            owner.send_inputs(encoded)
            line.channels["owner"].receive(MaskedLogits, rows=2, outputs=1)
            noise = np.random.default_rng(0).integers(0, 256, size=(1, key.width), dtype=np.uint8)
            noise[:, -1] = 0
            line.channels["owner"].send(OpenedLogits(noise))

        def compute() -> None:
            partner.open()
            partner.logits(partner.ask(partner.receive_inputs(2)))

        with pytest.raises(WrongContent, match="agreed on"):
            line.play(own, compute)

    def test_inputs_of_another_shape_or_key_are_refused(self, key: PrivateKey, public: PublicKey) -> None:
        other_key = PrivateKey.generate(SIZE)
        for rows, other, refusal in ((3, key, WrongContent), (2, other_key, CiphertextRefused)):
            line = Line()
            owner, _ = layer(line, other, public)
            _, partner = layer(line, key, public)

            def own(owner: LinearOwner = owner, rows: int = rows) -> None:
                owner.open()
                owner.send_inputs(owner.encode(np.ones((rows, 3))))

            def compute(partner: LinearPartner = partner) -> None:
                partner.open()
                partner.receive_inputs(2)

            with pytest.raises(refusal):
                line.play(own, compute)

    def test_masked_logits_without_randomness_are_refused(self, key: PrivateKey, public: PublicKey) -> None:
        line = Line()
        owner, _ = layer(line, key, public)
        encoded = owner.encode(np.ones((2, 3)))
        layout = owner.format.logits(2)
        naked = CipherArray(public, layout, [gmpy2.mpz(1)] * layout.count)
        with pytest.raises(CiphertextRefused, match="randomness"):
            line.play(lambda: owner.answer(encoded), lambda: line.channels["partner"].send(MaskedLogits(naked)))


def test_what_is_too_large_is_refused_before_it_is_encrypted(key: PrivateKey, public: PublicKey) -> None:
    owner, partner = layer(Line(), key, public)
    with pytest.raises(OutOfRange):
        owner.encode(np.full((2, 3), 17.0))
    with pytest.raises(OutOfRange):
        owner.encode(np.array([[np.nan, 0.0, 0.0]]))
    with pytest.raises(OutOfRange):
        FixedPoint.encode(np.array([[1.5]]), partner.format.step_format)


def test_scores_that_are_about_to_leave_their_range_end_training(key: PrivateKey, public: PublicKey) -> None:
    line = Line()
    owner, partner = layer(line, key, public)
    encoded = owner.encode(np.full((2, 3), 15.0))

    def own() -> None:
        owner.open(np.full((3, 1), 14.0))
        owner.send_inputs(encoded)
        owner.answer(encoded)

    def compute() -> None:
        partner.open()
        partner.logits(partner.ask(partner.receive_inputs(2)))

    with pytest.raises(TrainingFailed, match="too large"):
        line.play(own, compute)


def test_a_layer_goes_on_from_its_saved_state(key: PrivateKey, public: PublicKey) -> None:
    line = Line()
    owner, partner = layer(line, key, public, momentum=0.5)
    line.play(owner.open, partner.open)
    again_owner, again_partner = layer(Line(), key, public, momentum=0.5)
    again_owner.load_state(*owner.state())
    again_partner.load_state(*partner.state())
    assert (weights_of(again_owner, again_partner) == 0).all()
