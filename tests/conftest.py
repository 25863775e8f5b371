"""What holds for all tests."""

from __future__ import annotations

import signal

import hypothesis

# The same examples every time, so that a change is judged by the change; `make test-slow` looks for new ones.
hypothesis.settings.register_profile("explore", derandomize=False)
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")


def pytest_configure() -> None:
    # A shell has what it runs in the background ignore Ctrl-C, and so would every process that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
