"""SIGKILL at any moment, then the same command again: the same model, byte for byte.

A few kills are part of `benchmarks.restart --quick`, which `make test` runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kills.harness import Homes, disturb

PARTIES = {2: ("bank", "shop"), 3: ("bank", "shop", "telecom")}


@pytest.fixture(scope="module", params=(2, 3))
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    homes = Homes(tmp_path_factory.mktemp("whole"), PARTIES[request.param])
    homes.make()
    try:
        for party in homes.parties:
            homes.start(party)
        homes.wait()
        homes.check_ledgers()
        yield homes
    finally:
        homes.stop()


def disturbed_ends_the_same(undisturbed: Homes, folder: Path, kills: int, seed: int) -> int:
    homes = Homes(folder, undisturbed.parties)
    homes.make()
    try:
        restarts = disturb(homes, kills, seed)
        assert homes.models() == undisturbed.models()
        homes.check_ledgers()
    finally:
        homes.stop()
    return len(restarts)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_many_kills(undisturbed: Homes, tmp_path: Path, seed: int) -> None:
    assert disturbed_ends_the_same(undisturbed, tmp_path, 5, seed=100 + seed) >= 5
