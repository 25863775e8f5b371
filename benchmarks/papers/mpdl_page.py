"""The page that `benchmarks.papers.mpdl` writes."""

from typing import Any


def write_page(*_: Any) -> None: ...
