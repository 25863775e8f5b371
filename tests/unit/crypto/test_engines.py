"""Encrypted work gives the same bytes in this process, in a pool and on a real Ray, also when a worker is killed.

Each engine gets a process of its own: Ray keeps threads and settings in its process until the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

# The key is fixed and all randomness replaced by a known sequence, so that ciphertexts can be compared.
SCRIPT = """
import hashlib, itertools, json, os, secrets, signal, sys, threading
import numpy as np
from colonnade.crypto import PrivateKey, decrypt, encrypt, DEFAULT_FORMAT
from colonnade.engine import open_engine, Work

numbers = itertools.count()
def known(size):
    block = hashlib.shake_256(str(next(numbers)).encode())
    return block.digest(size)

P = (1 << 512) + int(sys.argv[2])
Q = (1 << 512) + int(sys.argv[3])
kind, kills = sys.argv[1], sys.argv[4] == "kill"
engine = open_engine(kind) if kind == "inline" else open_engine(kind, 2)
with engine:
    # Only now: a local Ray draws a token when it starts.
    secrets.token_bytes = known
    secrets.randbelow = lambda limit: int.from_bytes(known(400), "little") % limit
    key = PrivateKey(P, Q, engine)
    generator = np.random.default_rng(0)
    matrix, weights = generator.normal(size=(400, 12)), generator.normal(size=(12, 3))
    columns = encrypt(key, matrix, packed_axis=0, room=DEFAULT_FORMAT.bound * 12)
    single = encrypt(key, matrix[:120, 0])
    warm = matrix[:120].T @ single
    if kills:
        process = Work("colonnade.engine.probe:process", "colonnade.engine.probe:prepare", b"")
        victim = int(engine.map(process, [b""] * 8)[0])
        assert victim != os.getpid()
        # While a long product is under way.
        timer = threading.Timer(0.1, os.kill, (victim, signal.SIGKILL))
        timer.start()
    long = generator.normal(size=(600, 120)) @ single
    if kills:
        timer.join()
    product = columns @ weights
    opened = decrypt(key, product)
found = [columns, single, warm, long, product]
print(json.dumps({
    "bytes": [hashlib.sha256(one.to_bytes()).hexdigest() for one in found],
    "error": float(abs(opened - matrix @ weights).max()),
}))
"""
# 2**512 + 75 and 2**512 + 145 are prime.
PRIMES = ("75", "145")


def work_on(engine: str, folder: Path, ending: str = "") -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, engine, *PRIMES, ending],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment | {"HOME": str(folder)},
        timeout=150,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return work_on("inline", tmp_path_factory.mktemp("inline"))


@pytest.mark.parametrize("ending", ["", "kill"])
def test_a_pool_gives_the_same_ciphertexts(inline: dict[str, object], tmp_path: Path, ending: str) -> None:
    assert inline["error"] < 1e-5
    assert work_on("pool", tmp_path, ending) == inline


@pytest.mark.slow  # the engine's own test compares what Ray gives; this one is for what it is used for
def test_ray_gives_the_same_ciphertexts_also_when_a_worker_is_killed(inline: dict[str, object], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert work_on("ray", tmp_path, "kill") == inline
