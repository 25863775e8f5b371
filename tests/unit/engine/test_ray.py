"""The same bytes from a real Ray on this machine, also when one of its workers is killed.

Ray keeps threads, warnings and settings in its process until the end, so it gets one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

pytestmark = pytest.mark.timeout(180)

SCRIPT = """
import json, os, signal, stat, threading, time
from colonnade.engine import INLINE, Work, open_engine
from colonnade.errors import ColonnadeError

def work(function, context=b"context"):
    return Work("colonnade.engine.probe:" + function, "colonnade.engine.probe:prepare", context)

def failure(chunk):
    try:
        engine.map(work("fail"), [chunk, chunk])
    except ColonnadeError as error:
        return type(error).__name__ + ": " + str(error)

seen = {}
before = time.monotonic()
with open_engine("ray", 2) as engine:
    seen["start"] = time.monotonic() - before
    seen["engine"] = [engine.name, engine.workers]
    seen["private"] = stat.S_IMODE(os.stat(engine._folder).st_mode) == 0o700

    large = work("digest", bytes(range(256)) * 40_000)
    chunks = [b"%d" % number for number in range(20)]
    seen["same"] = [engine.map(large, chunks[:count]) == INLINE.map(large, chunks[:count]) for count in (0, 1, 2, 20)]
    engine.map(large, chunks)
    seen["contexts"] = len(engine._contexts)

    victim, other = {int(found) for found in engine.map(work("process"), [b""] * 8)}
    seen["apart"] = os.getpid() not in (victim, other)
    naps = [b"%d" % (300 + place) for place in range(6)]
    killer = threading.Timer(0.4, os.kill, (victim, signal.SIGKILL))
    killer.start()
    seen["same after a kill"] = engine.map(work("slow"), naps) == INLINE.map(work("slow"), naps)
    killer.join()
    later = [tuple(map(int, one.split())) for one in engine.map(work("preparations", b"new"), [b""] * 16)]
    seen["victim left"] = victim in {process for process, _ in later}

    seen["foreseen"], seen["unforeseen"] = failure(b"foreseen"), failure(b"secret")
    seen["parts"] = [len(engine.parts(100, each)) for each in (0.0005, 0.001, 0.1)]
    with open_engine("ray") as second:
        seen["second"] = second.map(large, chunks[:2]) == INLINE.map(large, chunks[:2])
    seen["still there"] = engine.map(large, chunks[:2]) == INLINE.map(large, chunks[:2])
    folder = engine._folder
seen["left"] = os.path.exists(folder)
try:
    engine.map(large, chunks)
except ColonnadeError as error:
    seen["closed"] = str(error)
print(json.dumps(seen))
"""


def test_ray_gives_the_same_bytes_also_when_a_worker_is_killed(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path)},
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["engine"] == ["ray", 2]
    assert seen["same"] == [True] * 4
    assert seen["contexts"] == 1
    assert seen["apart"]
    assert seen["same after a kill"]
    assert not seen["victim left"]
    assert seen["foreseen"] == "ConfigError: A setting is wrong. Correct it."
    assert "unforeseen ValueError at probe.py" in seen["unforeseen"]
    assert "secret" not in seen["unforeseen"]
    assert seen["parts"] == [1, 2, 8]
    assert seen["second"]
    assert seen["still there"], "who finds Ray running leaves it running"
    assert seen["closed"] == "This engine is closed. Open another."
    assert seen["private"]
    assert not seen["left"]
    assert list(tmp_path.iterdir()) == [], "no token is left in the user's home"
