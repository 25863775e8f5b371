"""Sums over encrypted rows, and an owner that encrypts what no row can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.exchanges.rooms import Room
from tests.worlds import integers_for_ciphertexts

from colonnade.crypto import CipherArray, FixedPoint, PrivateKey, key_bits
from colonnade.errors import OpeningRefused
from colonnade.exchanges.secure_product import SharedFormat
from colonnade.exchanges.weighted_sums import MaskedSums, SealedRows, SumOwner, SumPartner, SumShare, sum_format
from colonnade.messages import between
from colonnade.session.openings import MOST_ATTEMPTS

ROLES = {"label_holder": ("bank",), "feature_holder": ("shop",)}
MESSAGES = (between(MaskedSums, *ROLES), between(SumShare, *ROLES), between(SealedRows, *reversed(ROLES)))


def sides(format: SharedFormat, key: PrivateKey, sums: int = 1, releases: int = 1) -> tuple[Any, Any]:
    room = Room(ROLES, MESSAGES, coefficient_noise=0.0)
    owner = SumOwner(room.session("shop").channel("label_holder"), format, sums, releases, key)
    bank = room.session("bank")
    return owner, SumPartner(bank, bank.channel("feature_holder"), format, sums, releases, key.public)


@pytest.mark.parametrize(("cut", "columns", "sums"), [((1,), 1, 1), ((5, 3), 2, 3), ((4, 4, 1), 30, 2), ((9,), 9, 9)])
def test_sums_over_all_parts_are_exact_in_the_rounded_numbers(cut: tuple[int, ...], columns: int, sums: int) -> None:
    draw = np.random.default_rng(columns)
    format = sum_format(sum(cut), columns, key_bits("insecure_test"))
    rows = np.sign(draw.normal(size=(sum(cut), columns))) * draw.choice([4.0, 0.3], size=(sum(cut), columns))
    weights = [draw.choice([32.0, -32.0, 0.01], size=(sums, sum(cut))) for _ in range(2)]
    with integers_for_ciphertexts():
        owner, partner = sides(format, PrivateKey.generate("insecure_test"), sums, 2)
        for part in np.split(rows, np.cumsum(cut)[:-1]):
            owner.seal(part)
            partner.receive(len(part))
        for release in (0, 1):
            partner.send(release, weights[release], 0.0)
            owner.keep(release)
        for release in (1, 0):
            partner.unmask(release)
            fixed = np.rint(np.ldexp(weights[release], 20)) @ np.rint(np.ldexp(rows, 20))
            assert (owner.open(release) == np.ldexp(fixed, -40)).all()


def test_a_partner_that_breaks_off_again_and_again_gets_no_more_sums() -> None:
    format = sum_format(3, 1, key_bits("insecure_test"))
    with integers_for_ciphertexts():
        owner, partner = sides(format, PrivateKey.generate("insecure_test"))
        owner.seal(np.ones((3, 1)))
        partner.receive(3)
        partner._peer.openings.attempts = MOST_ATTEMPTS
        partner.send(0, np.ones((1, 3)), 0.0)
        partner._peer.openings.attempts += 1
        with pytest.raises(OpeningRefused, match="in attempt 11"):
            partner.send(0, np.ones((1, 3)), 0.0)


def test_rows_beyond_their_range_do_not_lift_the_partners_weights_above_the_mask() -> None:
    """Each row's number stands 30 bits above the one before, all of them above what a narrow mask would cover."""
    key, rows = PrivateKey.generate("insecure_test"), 20
    format = sum_format(rows, 1, key_bits("insecure_test"))
    layout = format.sealed(rows)
    weights = np.random.default_rng(0).uniform(-1.0, 1.0, size=(1, rows))
    owner, partner = sides(format, key)
    owner._peer.send(
        SealedRows(CipherArray(key, layout, key.encrypt_integers([1 << 300 + 30 * n for n in range(rows)])))
    )
    partner.receive(rows)
    partner.send(0, weights, 0.0)
    (found,) = key.decrypt_integers(owner._peer.receive(MaskedSums, sums=1, columns=1).values.ciphertexts)
    above, read = int(found - key.n if found > key.n >> 1 else found) + (1 << 299) >> 300, []
    for _ in range(rows):
        read.append((above + (1 << 29)) % (1 << 30) - (1 << 29))
        above = above - read[-1] >> 30
    true = FixedPoint.encode(weights[0], format.factors).integers
    assert sum(one == other for one, other in zip(read, true.tolist(), strict=True)) == 0
