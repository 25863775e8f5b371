"""Small sources and targets, what they received, and ciphertexts that are plain integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gmpy2
import numpy as np
import pandas as pd
import pytest
from gmpy2 import mpz

import colonnade as cn
from colonnade.crypto import CipherArray, PrivateKey, PublicKey, cipher_array, ring_integers
from colonnade.messages import declaration_of, decode_body, open_frame

SEED = 11
SMALL: dict[str, Any] = {
    "width": 3,
    "iterations": 4,
    "learning_rate": 0.1,
    "safeguard": False,
    "key_size": "insecure_test",
}


def settings(**changes: Any) -> cn.FTL:
    """Return settings with which a run takes a second."""
    return cn.FTL(**{**SMALL, **changes})


def frames(
    task: str = "binary",
    *,
    sources: int = 1,
    targets: int = 1,
    shared: int = 71,
    own: int = 20,
    columns: tuple[int, int] = (3, 4),
    seed: int = 5,
) -> dict[str, pd.DataFrame]:
    """Return tables of traits that both sides see: so many shared rows, and more that only one party has."""
    generator = np.random.default_rng(seed)
    parties = [*[f"bank{i}" for i in range(sources)], *[f"shop{i}" for i in range(targets)]]
    mixing = {party: generator.normal(size=(3, columns[party.startswith("shop")])) for party in parties}
    weights = generator.normal(size=3)
    found = {}
    traits = generator.normal(size=(shared, 3))
    for place, party in enumerate(parties):
        every = np.vstack([traits, generator.normal(size=(own, 3))])
        block = every @ mixing[party] + 0.5 * generator.normal(size=(len(every), columns[party.startswith("shop")]))
        frame = pd.DataFrame(block * 3 + 1, columns=[f"{party}_{i}" for i in range(block.shape[1])])
        frame["id"] = [*range(shared), *(10_000 * (place + 1) + np.arange(own))]
        if party.startswith("bank"):
            signal = every @ weights
            frame["y"] = {
                "binary": (signal > 0).astype(int),
                "multiclass": np.digitize(signal, [-0.7, 0.7]),
                "regression": signal * 4 + 2,
            }[task]
        found[party] = frame.sample(frac=1, random_state=place)
    return found


def tables_of(found: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None, name=name)
        for name, frame in found.items()
    }


def roles_of(parties: Sequence[str]) -> dict[str, tuple[str, ...]]:
    starts = {"source": "bank", "target": "shop"}
    return {role: tuple(one for one in parties if one.startswith(start)) for role, start in starts.items()}


def run_of(found: dict[str, pd.DataFrame], config: cn.FTL, **options: Any) -> cn.Run:
    return cn.simulate(config, tables_of(found), roles=roles_of(list(found)), **{"seed": SEED, **options})


def view(run: cn.Run, party: str) -> list[tuple[str, Any]]:
    """Return what a party received in the method, decoded: sender and message."""
    known = {declaration_of(cls).schema: declaration_of(cls) for cls in run.method.messages}
    found = []
    for sender, frame in run.views[party]:
        header, body = open_frame(frame)
        if header.schema in known:
            found.append((sender, decode_body(known[header.schema], body)))
    return found


def name_of(message: Any) -> str:
    return declaration_of(message).name


def received(run: cn.Run, party: str, name: str, sender: str | None = None) -> list[Any]:
    return [one for origin, one in view(run, party) if name_of(one) == name and sender in (None, origin)]


def parameters(run: cn.Run) -> dict[str, np.ndarray]:
    return {
        f"{party}: {name}": value.numpy() for party, part in run.parts.items() for name, value in part.tensors.items()
    }


def assert_same_parameters(first: cn.Run, second: cn.Run, within: float = 0.0) -> None:
    one, two = parameters(first), parameters(second)
    assert one.keys() == two.keys()
    for name, value in one.items():
        if within:
            assert np.abs(value - two[name]).max(initial=0.0) < within, name
        else:
            assert value.tobytes() == two[name].tobytes(), name


@contextmanager
def integers_for_ciphertexts() -> Iterator[None]:
    """Let every ciphertext be the integer it hides, modulo n: all but the encryption happens, exactly."""

    def encrypt(key: PublicKey, plains: Sequence[int]) -> list[mpz]:
        return [mpz(plain) % key.n for plain in plains]

    def add(key: PublicKey, ones: Sequence[mpz], others: Sequence[int]) -> list[mpz]:
        return [(one + mpz(other)) % key.n for one, other in zip(ones, others, strict=True)]

    def products(key: PublicKey, bases: Sequence[mpz], count: int, exponents: Sequence[Sequence[int]]) -> list[mpz]:
        sets = [bases[at : at + count] for at in range(0, len(bases), count)]
        return [sum(map(_times, one, row), mpz(0)) % key.n for one in sets for row in exponents]

    def group_products(key: PublicKey, groups: Sequence[Sequence[mpz]], exponents: Any) -> list[mpz]:
        each = zip(groups, exponents, strict=True)
        return [one for bases, own in each for one in products(key, bases, len(bases), own.T.tolist())]

    def shifted_sums(key: PublicKey, groups: Sequence[Sequence[mpz]], slot_bits: int) -> list[mpz]:
        return [sum((one << slot_bits * slot for slot, one in enumerate(group)), mpz(0)) % key.n for group in groups]

    class Powers:
        """What arrays use of gmpy2: a shift of the hidden integer is a power of the ciphertext."""

        powmod = staticmethod(lambda one, shift, square: one * shift % gmpy2.isqrt(square))

    with pytest.MonkeyPatch.context() as patch:
        for kind in (PublicKey, PrivateKey):
            patch.setattr(kind, "encrypt_integers", encrypt)
        for name, function in {
            "multiply_in": add,
            "add_plain": add,
            "products": products,
            "group_products": group_products,
            "shifted_sums": shifted_sums,
            "check_ciphertexts": lambda key, ciphertexts: None,
        }.items():
            patch.setattr(PublicKey, name, function)
        patch.setattr(PrivateKey, "decrypt_integers", lambda key, ciphertexts: [int(one) for one in ciphertexts])
        patch.setattr(
            cipher_array, "batch_inverse", lambda values, square: [-one % gmpy2.isqrt(square) for one in values]
        )
        patch.setattr(cipher_array, "gmpy2", Powers)
        yield


def _times(one: mpz, other: int) -> mpz:
    return one * other


def hidden(array: CipherArray, modulus: int) -> np.ndarray:
    """Return the integers of an array that `integers_for_ciphertexts` made, one number to a ciphertext."""
    assert array.layout.packed_axis is None
    signed = [int(one) - modulus if int(one) > modulus // 2 else int(one) for one in array.ciphertexts]
    return np.array(signed, dtype=object).reshape(array.shape)


def modulus_of(run: cn.Run, owner: str) -> int:
    """Return a party's public key, as its partner received it."""
    other = next(party for party in run.plan.parties if run.plan.role_of(party) != run.plan.role_of(owner))
    (found,) = received(run, other, "PublicModulus", owner)
    return int(found.modulus)


def opened_integers(message: Any, modulus: int) -> list[int]:
    """Return the ring elements of an opened message."""
    values = message.values
    return [int(one) for one in ring_integers(values, PublicKey(modulus), len(values))]
