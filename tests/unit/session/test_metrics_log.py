"""What a party writes down while it trains stays with its owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.session import MetricsLog


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """Let new files be as readable as their maker asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_only_the_owner_may_read_the_metrics(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    log = MetricsLog(path)
    log.record("train", 1, {"loss": 0.5})
    assert path.stat().st_mode & 0o777 == 0o600
    log.record("train", 2, {"loss": 0.25})
    log.rewind("train", 1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert MetricsLog(path).lines == log.lines
