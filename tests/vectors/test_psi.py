"""Known answers of private set intersection, by arithmetic that shares no code with the product."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.vectors.make_psi import FILE, made

from colonnade.crypto.blinding import (
    Blinder,
    blind,
    blind_each,
    evaluate,
    expand_message,
    join_ids,
    multiply,
    unblind_each,
)
from colonnade.data import canonical_id_bytes


@pytest.fixture(scope="module")
def vector() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def test_the_file_is_what_its_maker_makes(vector: dict[str, Any]) -> None:
    assert made() == vector


def test_ids_are_stretched_blinded_and_evaluated_as_the_file_says(vector: dict[str, Any]) -> None:
    salt = bytes.fromhex(vector["salt"])
    first, second = (Blinder(bytes.fromhex(vector[name]), salt) for name in ("first", "second"))
    plain = Blinder((1).to_bytes(32, "big"), salt)
    for case in vector["ids"]:
        one = bytes.fromhex(case["id"])
        assert expand_message(salt + one, vector["suite"].encode(), 64).hex() == case["expanded"]
        assert blind(plain, join_ids([one])).hex() == case["hashed"]
        assert blind(first, join_ids([one])).hex() == case["by_first"]
        assert blind(second, join_ids([one])).hex() == case["by_second"]
        assert multiply(second, bytes.fromhex(case["by_first"])).hex() == case["by_both"]
        assert multiply(first, bytes.fromhex(case["by_second"])).hex() == case["by_both"]
        assert blind_each(first, join_ids([one])).hex() == case["by_factor"]
        returned = multiply(second, bytes.fromhex(case["by_factor"]))
        assert unblind_each(first, join_ids([returned + one])).hex() == case["output_by_second"]
        assert evaluate(second, join_ids([one])).hex() == case["output_by_second"]


def test_the_ids_of_the_file_are_those_of_rows(vector: dict[str, Any]) -> None:
    rows = [7, "7", "Zoë", ("Zoe", 7), -(2**127), "x" * 300]
    assert [canonical_id_bytes(one).hex() for one in rows] == [case["id"] for case in vector["ids"]]
