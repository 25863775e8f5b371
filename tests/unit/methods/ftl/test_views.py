"""What each party receives in an encrypted run: kinds, order, shapes, counts, and that it looks like noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import gmpy2
import numpy as np
import pytest
from scipy import stats
from tests.unit.methods.ftl.worlds import frames, modulus_of, opened_integers, run_of, settings
from tests.worlds import integers_for_ciphertexts, name_of, received, view

import colonnade as cn
from colonnade.crypto import CipherArray, FixedPoint, Format, PrivateKey, PublicKey, decrypt, encrypt, key_bits
from colonnade.errors import DeclarationError, OutOfRange
from colonnade.exchanges.secure_product import ask_to_open
from colonnade.messages import PLAIN
from colonnade.methods.ftl import METHOD, sealed, steps
from colonnade.methods.ftl.link import Keys, Link, Sizes, parameter_counts
from colonnade.methods.ftl.messages import MaskedEncoderGradient, TargetSignals
from colonnade.session import RunPlan

ROWS = 50
READABLE = {"SourceSignals", "TargetSignals", "CodesToScore", "LabelsToFit", "ScoreParts", "MirroredSignals"}
"""What only a run without encryption shows to its receivers."""


def schedule(layers: int, iterations: int) -> tuple[list[str], list[str]]:
    """Return what source and target receive, by section 3 of the sheet; gradients come layer by layer."""
    at_source = ["PublicModulus", "LayerInputs"]
    at_target = ["PublicModulus", "LayerInputs", "LabelledRows"]
    for _ in range(iterations):
        at_source += ["TargetSignals", *["MaskedEncoderGradient"] * layers, *["OpenedEncoderGradient"] * layers]
        at_target += [
            "SourceSignals",
            *["MaskedEncoderGradient"] * layers,
            *["OpenedEncoderGradient"] * layers,
            "Verdict",
        ]
    return [*at_source, "CodesToScore", "OpenedScores"], [*at_target, "MaskedScores"]


@pytest.mark.parametrize(("hidden", "batch"), [((), 0), ((2,), 0), ((), 30)])
def test_messages_are_those_of_the_sheet_in_kind_order_shape_and_number(hidden: tuple[int, ...], batch: int) -> None:
    found, config = frames(), settings(hidden=hidden, batch_size=batch, iterations=3, loss_every=2)
    run = run_of(found, config, launch=cn.Launch(keep_views=True))
    layers, width = 1 + len(hidden), config.width
    rows, triangle = batch or ROWS, width * (width + 1) // 2
    expected = dict(zip(("bank0", "shop0"), schedule(layers, 3), strict=True))
    slots = {}
    for party, names in expected.items():
        seen = view(run, party)
        assert [name_of(one) for _, one in seen] == names
        iteration, layer = -1, 0
        for _, one in seen:
            kind = name_of(one)
            if kind == "SourceSignals":
                iteration, layer = iteration + 1, 0
                assert (one.rows.shape, one.moment.shape) == ((rows, width), (triangle,))
                assert len(one.rows.ciphertexts) + len(one.moment.ciphertexts) == rows * width + triangle
            if kind == "TargetSignals":
                iteration, layer = iteration + 1, 0
                assert (one.codes.shape, one.moment.shape, one.remainder.shape) == ((rows, width), (triangle,), (1,))
                sent = sum(len(each.ciphertexts) for each in (one.codes, one.moment, one.remainder))
                assert sent == rows * width + triangle + 1
            if kind == "MaskedEncoderGradient":
                # The sender's parameters, last layer first; the source's first carry the loss, if it is looked at.
                inputs = 3 if party == "shop0" else 4
                numbers = parameter_counts((inputs, *hidden), width)[layer]
                numbers += party == "shop0" and layer == 0 and iteration % 2 == 0
                assert one.values.shape == (numbers,)
                assert len(one.values.ciphertexts) == -(-numbers // one.values.layout.slots)
                slots[party, iteration, layer] = len(one.values.ciphertexts)
                layer += 1
                layer %= layers
    for party, other in (("bank0", "shop0"), ("shop0", "bank0")):
        opened = [len(one.values) for one in received(run, party, "OpenedEncoderGradient")]
        assert opened == [count for (asker, _, _), count in slots.items() if asker == other]
    run.verify()


def test_ciphertexts_of_the_sheets_example_are_as_many_as_it_counts() -> None:
    """1000 rows, one layer of 18 inputs, 2048 bits: section 4's table."""
    key = PrivateKey.generate("2048").public
    for width, parameters, replies in ((32, 608, 41), (64, 1216, 82)):
        counts = parameter_counts((18,), width)
        assert counts == [parameters]
        (layout,) = sealed.gradient_layouts(counts, [64], key)
        assert (layout.slots, layout.count) == (15, replies)
        triangle = width * (width + 1) // 2
        sent = [
            sealed.plan((1000, width), sealed.CODES, key),
            sealed.plan((triangle,), sealed.moment_format(1000), key),
        ]
        assert sum(one.count for one in sent) + 1 == {32: 32_529, 64: 66_081}[width]


@pytest.mark.parametrize("changes", [{}, {"safeguard": True, "margin": -1.0}, {"reveal": "rows"}])
def test_no_number_crosses_unencrypted_and_unmasked(changes: dict[str, Any]) -> None:
    with integers_for_ciphertexts():
        run = run_of(frames(), settings(**changes), launch=cn.Launch(keep_views=True))
    for party in run.plan.parties:
        for _, one in view(run, party):
            for field in dataclasses.fields(one):
                value = getattr(one, field.name)
                kinds = (bool, int, str, tuple, type(None), CipherArray, np.ndarray)
                assert isinstance(value, kinds), (name_of(one), field.name)
                if isinstance(value, np.ndarray):
                    # Ring elements, and which rows are labelled.
                    assert value.dtype in (np.uint8, np.bool_), (name_of(one), field.name)
                    assert (value.dtype == np.bool_) == (name_of(one) == "LabelledRows")


def test_what_is_opened_for_the_other_is_uniform() -> None:
    found = frames(columns=(24, 24), own=5)
    tops: list[int] = []

    def looks_uniform() -> bool:
        tops.clear()
        with integers_for_ciphertexts():
            run = run_of(
                found,
                settings(width=16, iterations=90, tolerance=0.0, loss_every=0, reconstruction=0.0),
                launch=cn.Launch(keep_views=True),
            )
        for party, other in (("bank0", "shop0"), ("shop0", "bank0")):
            modulus = modulus_of(run, other)
            for one in received(run, party, "OpenedEncoderGradient"):
                tops.extend(element * 256 // modulus for element in opened_integers(one, modulus))
        assert len(tops) >= 10_000
        return bool(stats.chisquare(np.bincount(tops, minlength=256)).pvalue > 0.001)

    # Chance alone fails one time in a thousand; twice in a row it does not.
    assert looks_uniform() or looks_uniform()


def test_whatever_goes_back_to_the_owner_of_a_key_was_masked_and_so_re_randomised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh: set[int] = set()
    mask, rerandomise = CipherArray.mask, CipherArray.rerandomise

    def masked(array: CipherArray) -> Any:
        made = mask(array)
        fresh.update(map(int, made[0].ciphertexts))
        return made

    def rerandomised(array: CipherArray) -> CipherArray:
        made = rerandomise(array)
        fresh.update(map(int, made.ciphertexts))
        return made

    monkeypatch.setattr(CipherArray, "mask", masked)
    monkeypatch.setattr(CipherArray, "rerandomise", rerandomised)
    run = run_of(
        frames(),
        settings(safeguard=True, labelled_rows=8, iterations=2, hidden=(2,)),
        launch=cn.Launch(keep_views=True),
    )
    seen = 0
    for party in run.plan.parties:
        own = PublicKey(modulus_of(run, party)).fingerprint
        for _, one in view(run, party):
            arrays = [getattr(one, field.name) for field in dataclasses.fields(one)]
            for array in arrays:
                if isinstance(array, CipherArray) and array._fingerprint == own:
                    assert fresh >= set(map(int, array.ciphertexts)), name_of(one)
                    seen += 1
    assert seen > 2 * 2 * 2


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate("insecure_test")


class Ear:
    """A channel that keeps what is sent."""

    def __init__(self, role: str = "source", peer_role: str = "target") -> None:
        self.role, self.peer_role, self.heard = role, peer_role, list[Any]()

    def send(self, message: Any) -> None:
        self.heard.append(message)


def random_part(key: PrivateKey, ciphertext: Any) -> Any:
    """Extract, as only the key's owner can, the randomness of a ciphertext."""
    order = gmpy2.lcm(key._p - 1, key._q - 1)
    return gmpy2.powmod(ciphertext % key.n, gmpy2.invert(key.n, order), key.n)


@pytest.mark.parametrize("careless", [False, True])
def test_the_owner_cannot_read_factors_from_the_randomness_it_knows(
    key: PrivateKey, careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sheet's attack, which must work on replies that are only masked with a plain number."""
    if careless:

        def mask(array: CipherArray) -> tuple[CipherArray, Any]:
            return array + FixedPoint(np.ones(array.shape, dtype=np.int64), array.layout.fraction_bits, 1), None

        monkeypatch.setattr(CipherArray, "mask", mask)
    secret = 0b1011_0110_1101
    codes = encrypt(key, [[0.75]], sealed.CODES)
    received_codes = CipherArray.from_bytes(codes.to_bytes()).under(key.public, codes.layout)
    places = np.array([[0]])
    replies = []
    for _ in range(2):
        gradient = sealed.last_layer([(received_codes, places)], np.array([[[secret / 2.0**32]]]))
        ear = Ear()
        ask_to_open(ear, MaskedEncoderGradient, sealed.ready(gradient))  # type: ignore[arg-type]
        replies.append(ear.heard[0].values)
    known = random_part(key, codes.ciphertexts[0])
    answer = random_part(key, replies[0].ciphertexts[0])
    hits = [guess for guess in range(1 << 12) if gmpy2.powmod(known, guess, key.n) == answer]
    assert hits == ([secret] if careless else [])
    assert (replies[0].ciphertexts == replies[1].ciphertexts) == careless


def test_identical_steps_give_different_ciphertexts_of_the_same_content(key: PrivateKey) -> None:
    """Steps 1 to 4 of two attempts that begin alike: nothing repeats on the wire, but the models are equal."""
    runs = [run_of(frames(), settings(iterations=1), launch=cn.Launch(keep_views=True)) for _ in range(2)]
    for party, name in (("shop0", "SourceSignals"), ("bank0", "TargetSignals"), ("shop0", "MaskedEncoderGradient")):
        one, two = (received(run, party, name)[0] for run in runs)
        for field in dataclasses.fields(one):
            first, second = getattr(one, field.name), getattr(two, field.name)
            assert not set(first.ciphertexts) & set(second.ciphertexts)
            assert len(set(first.ciphertexts)) == len(first.ciphertexts)


def test_numbers_at_the_declared_bounds_come_back_and_none_beyond_is_encrypted(
    key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(Ear(), Keys(key, key), settings(width=2), Sizes((3,), 3))  # type: ignore[arg-type]
    formats = {sealed.CODES: 1.0, sealed.ROWS: 256.0, sealed.REMAINDER: 2.0**24, sealed.moment_format(50): 64.0}
    for format, bound in formats.items():
        at_bound = np.array([bound, -bound, 0.0])
        assert decrypt(key, link.seal(at_bound, format)).tolist() == at_bound.tolist()
    # As large as all of it can be at once: codes of one, inputs of ten deviations, slopes of one.
    rows, width = 200, 2
    codes = link.seal(np.ones((rows, width)), sealed.CODES)
    factors = np.full((width, rows, 3), 2.0**22)
    gradient = sealed.last_layer([(codes, sealed.by_entry(rows, width))], factors)
    ready = sealed.ready(gradient)
    assert ready.layout == sealed.gradient_layouts([width * 3], [64], key)[0]
    assert decrypt(key, ready).tolist() == [rows * 2.0**22] * 6

    monkeypatch.setattr(PrivateKey, "encrypt_integers", lambda *_: pytest.fail("encrypted"))
    for format, bound in formats.items():
        for beyond in (np.nextafter(bound, np.inf), -np.nextafter(bound, np.inf), np.nan, np.inf, -np.inf):
            with pytest.raises(OutOfRange):
                link.seal([beyond], format)
    with pytest.raises(OutOfRange):
        sealed.last_layer([(codes, sealed.by_entry(rows, width))], np.nextafter(factors, np.inf))


def test_noise_has_the_right_deviation_and_spares_the_loss(key: PrivateKey) -> None:
    (layout,) = sealed.gradient_layouts([4001], [96], key)
    noise = sealed.noise_for(layout, 3.0, 1)
    values = noise.decode()
    assert values[-1] == 0.0
    assert abs(values[:-1].std() - 3.0) < 0.2
    assert abs(values[:-1].mean()) < 0.25
    assert len(set(values[:-1])) == 4000
    assert noise.bound <= layout.bound
    assert stats.kstest(values[:-1] / 3.0, "norm").pvalue > 1e-4


def plan_of(**changes: Any) -> RunPlan:
    stage, sources = changes.pop("stage"), changes.pop("sources")
    roles = {"source": tuple(f"bank{i}" for i in range(sources)), "target": ("shop",)}
    config = dataclasses.asdict(settings(**changes))
    return RunPlan(name="run", method="ftl", roles=roles, config=config, stage=stage)


def test_a_run_can_send_what_its_settings_need_and_nothing_in_the_clear_that_they_encrypt() -> None:
    every = set()
    for protection in ("paillier", "none"):
        for stage in ("train", "validate", "predict"):
            for safeguard in (True, False):
                for sources in (1, 2):
                    facts = {"stage": stage, "sources": sources, "safeguard": safeguard, "protection": protection}
                    found = METHOD.declarations_in(plan_of(**facts))
                    every |= {one.schema for one in found}
                    readable = {one.name for one in found if one.protection is PLAIN}
                    names = {one.name for one in found}
                    assert ("PublicModulus" in names) == (protection == "paillier")
                    assert (readable & READABLE) == (names & READABLE if protection == "none" else set())
                    assert ("ciphertext" in str([one.body.describe() for one in found])) == (protection == "paillier")
                    assert ("ScoreParts" in names) == (sources > 1 and stage == "predict")
                    assert ("Choice" in names) == (safeguard and stage == "train")
    assert every == {one.schema for one in METHOD.declarations}


def test_an_encrypted_run_cannot_send_codes_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(trainer: Any, codes: Any, *rest: Any) -> Any:
        trainer._peer.send(TargetSignals(codes, np.zeros(6), np.zeros(1)))

    monkeypatch.setattr(steps.TargetTrainer, "_exchange", careless)
    with pytest.raises(DeclarationError, match="declared as CipherArray"):
        run_of(frames(), settings())


def test_the_key_sizes_of_the_settings_exist() -> None:
    for size in (2048, 3072, "insecure_test"):
        assert key_bits(cn.FTL(key_size=size).key_size) >= 1024
    assert Format(32, 0) == sealed.CODES
