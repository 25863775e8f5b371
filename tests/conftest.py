"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell has what it runs in the background ignore Ctrl-C, and so would every process that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
