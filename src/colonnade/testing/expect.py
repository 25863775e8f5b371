"""Say what was expected and did not come, with or without a test runner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["raising", "require"]


def require(condition: object, expected: str) -> None:
    """Raise AssertionError unless something is true."""
    if not condition:
        raise AssertionError(expected)


@contextmanager
def raising(kind: type[BaseException], words: str = "") -> Iterator[list[BaseException]]:
    """Expect an error whose text matches some words, and give it in a list."""
    found: list[BaseException] = []
    try:
        yield found
    except kind as error:
        found.append(error)
        require(re.search(words, str(error)), f"{kind.__name__} should say '{words}', and says: {error}")
    else:
        raise AssertionError(f"Expected {kind.__name__} {words}, and nothing was raised.")
