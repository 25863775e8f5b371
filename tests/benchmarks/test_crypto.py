"""The crypto benchmark gives its figures and bars in the form of all benchmarks. How fast it is, is not tested."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from typing import Any

import pytest

from colonnade.crypto.bench.speed import FULL, QUICK, measure_crypto

OPERATIONS = ("encrypt", "matrix_vector", "transposed_vector", "decrypt")
SPEEDUPS = {f"{operation}_speedup" for operation in OPERATIONS}
OURS = {f"{operation}_ms" for operation in (*OPERATIONS, "encrypt_not_owner", "bound_encrypt")}
PHE = {f"{side}_{operation}_ms" for side in ("phe", "phe_default") for operation in OPERATIONS}


def quiet(text: str) -> None:
    assert text


def without_phe(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "phe" else find(name, *rest))
    monkeypatch.setitem(sys.modules, "phe", None)


def test_figures_and_bars_are_those_of_the_full_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.crypto.bench.speed.usable_cores", lambda: 2)
    found = measure_crypto(QUICK, quiet)
    limits = {name: bar.get("at_least", bar.get("at_most")) for name, bar in found.bars.items()}
    assert limits == {
        "encrypt_times_bound": 1.6,
        "encrypt_speedup": 300,
        "matrix_vector_speedup": 30,
        "transposed_vector_speedup": 5,
        "decrypt_speedup": 15,
        "pool_speedup": 1.5,
    }
    assert set(found.figures) >= OURS | PHE
    assert {found.figures[f"{operation}_speedup_of_phe_default"] > 0 for operation in OPERATIONS} == {True}
    assert found.figures["key_bits"] == 1024
    assert found.figures["precision"] == "2^-24"
    assert found.figures["slots_per_ciphertext"] > 1
    assert found.figures["phe_values_measured"] == QUICK.peer_values
    assert found.figures["largest_error"] < 1e-5
    json.dumps(found.document())


def test_two_workers_are_no_bar_for_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.crypto.bench.speed.usable_cores", lambda: 1)
    found = measure_crypto(QUICK, quiet)
    assert "pool_speedup" in found.figures
    assert "pool_speedup" not in found.bars


def test_a_larger_key_gives_figures() -> None:
    found = measure_crypto(dataclasses.replace(QUICK, larger_key="insecure_test"), quiet)
    assert {"encrypt_1024_bits_ms", "decrypt_1024_bits_ms"} <= set(found.figures)


def test_without_phe_there_are_own_figures_and_how_to_get_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    without_phe(monkeypatch)
    said: list[str] = []
    found = measure_crypto(QUICK, said.append)
    assert found.bars == {}
    assert found.figures["phe"] == "not installed"
    assert OURS | {"encrypt_times_bound", "pool_speedup"} <= set(found.figures)
    assert not (PHE | SPEEDUPS) & set(found.figures)
    assert "pip install phe" in said[-1]


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    without_phe(monkeypatch)
    monkeypatch.setattr("os.getloadavg", lambda: (3.5, 1.0, 1.0))
    said: list[str] = []
    found = measure_crypto(QUICK, said.append)
    assert "3.50" in said[0]
    assert found.figures["load_average_before"] == 3.5


def test_wrong_results_are_no_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_phe(monkeypatch)
    import colonnade.crypto.bench.speed as measured

    right: Any = measured.decrypt
    monkeypatch.setattr(measured, "decrypt", lambda key, array: right(key, array) + 0.01)
    with pytest.raises(RuntimeError, match="differ"):
        measure_crypto(QUICK, quiet)


def test_the_full_benchmark_uses_keys_that_hold() -> None:
    assert FULL.key == "2048"
