"""Masks of two parties: alike, bound to their run, used once, and agreed with real keys only."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from colonnade.crypto.pairwise_masks import MaskPair, MaskSecret, PairwiseMasks
from colonnade.errors import LeakRefused, WrongContent

# Points of small order on curve 25519 and its twist, and 0 and 1 written beyond the prime (RFC 7748, section 6.1).
PRIME = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    PRIME - 1,
    PRIME,
    PRIME + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]


def agreed(run: str = "run") -> tuple[MaskPair, MaskPair]:
    one, other = MaskSecret(), MaskSecret()
    return (
        one.agree(run, "bank", "shop", other.public, adds=True),
        other.agree(run, "shop", "bank", one.public, adds=False),
    )


def mask_of(pair: MaskPair, purpose: str = "sum", counter: int = 0, size: int = 6) -> list[int]:
    words = np.zeros(size, np.uint64)
    PairwiseMasks([pair], purpose).hide(words, counter)
    return words.tolist()


def test_masks_of_two_parties_cancel_at_every_counter_and_shape() -> None:
    one, other = (PairwiseMasks([pair], "sum") for pair in agreed())
    seen = []
    for shape in ((3, 4), (3, 4), (1,), (2, 3, 4), (0, 5), (7, 1)):
        words = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
        one.hide(words[0])
        other.hide(words[1])
        assert not (words[0] + words[1]).any()
        seen += words[0].reshape(-1).tolist()
    assert len(set(seen)) == len(seen)


def test_the_stream_is_aes_in_counter_mode_with_the_counter_in_the_upper_half() -> None:
    pair, _ = agreed()
    for counter in (0, 1, 2**40):
        start = counter.to_bytes(8, "big") + bytes(8)
        cipher = Cipher(algorithms.AES(pair.cipher_key("sum")), modes.CTR(start)).encryptor()
        assert mask_of(pair, counter=counter) == np.frombuffer(cipher.update(bytes(48)), "<u8").tolist()


def test_another_run_attempt_purpose_name_or_counter_gives_other_masks() -> None:
    one, other = MaskSecret(), MaskSecret()
    pairs = [
        one.agree("run", "bank", "shop", other.public, adds=True),
        one.agree("run", "bank", "shop", MaskSecret().public, adds=True),
        one.agree("another", "bank", "shop", other.public, adds=True),
        one.agree("run", "bank", "mall", other.public, adds=True),
        one.agree("run", "bankshop", "", other.public, adds=True),
    ]
    streams = [mask_of(pair) for pair in pairs]
    streams += [mask_of(pairs[0], "query"), mask_of(pairs[0], counter=1)]
    words = [word for stream in streams for word in stream]
    assert len(set(words)) == len(words)


def test_a_mask_serves_once() -> None:
    masks = PairwiseMasks(agreed()[:1], "sum")
    masks.hide(np.zeros((2, 3), np.uint64))
    masks.hide(np.zeros((2, 3), np.uint64), 5)
    for counter in (0, 3, 5):
        for shape in ((2, 3), (9,)):
            with pytest.raises(LeakRefused, match="was used before"):
                masks.hide(np.zeros(shape, np.uint64), counter)
    with pytest.raises(LeakRefused):
        masks.hide(np.zeros(1, np.uint64), -1)
    masks.hide(np.zeros((2, 3), np.uint64), 2**64 - 1)
    with pytest.raises(LeakRefused):
        masks.hide(np.zeros((2, 3), np.uint64))


def test_masks_are_uniform_in_every_byte() -> None:
    words = np.array(mask_of(agreed()[0], size=40_000), np.uint64).view(np.uint8).reshape(-1, 8)
    for place in range(8):
        assert stats.chisquare(np.bincount(words[:, place], minlength=256)).pvalue > 1e-6


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order_is_refused(point: int) -> None:
    with pytest.raises(WrongContent, match="hides nothing"):
        MaskSecret().agree("run", "bank", "shop", point.to_bytes(32, "little"), adds=True)


def test_keys_of_another_length_and_our_own_sent_back_are_refused() -> None:
    secret = MaskSecret()
    for offered in (b"", bytes(31), b"\x09" + bytes(32), secret.public):
        with pytest.raises(WrongContent, match="'shop' sent a key for masks"):
            secret.agree("run", "bank", "shop", offered, adds=True)


def test_what_two_parties_agreed_on_is_not_printed() -> None:
    pair, _ = agreed()
    assert pair.secret.hex() not in repr(pair)
    assert str(pair.secret) not in repr(pair)
