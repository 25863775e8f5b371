"""The page that `benchmarks.papers.fedcvt` writes."""

from typing import Any


def write_page(found: Any, findings: Any, sizes: Any) -> None:
    raise NotImplementedError
