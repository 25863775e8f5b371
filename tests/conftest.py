"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.worlds import few_keys

# The same examples every time, so that a change is judged by the change; `make test-slow` looks for new ones.
hypothesis.settings.register_profile("explore", derandomize=False)
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")


def pytest_configure() -> None:
    # A shell has what it runs in the background ignore Ctrl-C, and so would every process that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_waits() -> Iterator[None]:
    """Let runs share few keys, and write without waiting for the disk: what the tests end is never the machine."""
    with few_keys(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
