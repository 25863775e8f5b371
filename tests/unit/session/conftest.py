from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.session.trials import Trial


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Parties are threads already; more of them per party only slow such small networks down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Trial]:
    def make(parties: int = 2, folder: bool = True, **settings: Any) -> Trial:
        return Trial(tmp_path / f"run-{len(list(tmp_path.iterdir()))}" if folder else None, parties, settings)

    return make
