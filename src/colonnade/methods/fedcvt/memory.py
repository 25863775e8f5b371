"""Codes of earlier batches, to which attention may look as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

__all__ = ["Memory"]


class Memory:
    """The last rows' codes, as they were: of shared rows at all parties together, and of each party's own rows.

    Shared rows carry their place, so that no row looks at its own earlier code.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._places = torch.zeros(0, dtype=torch.int64)
        self._batch = self._places
        self._codes: dict[str, torch.Tensor] = {}

    def look(self, places: torch.Tensor) -> None:
        """Say which shared rows the batch to come has."""
        self._batch = places

    def extend(
        self,
        kind: str,
        is_within: bool,
        parties: tuple[int, int],
        keys: torch.Tensor,
        values: torch.Tensor,
        hidden: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Add what is remembered to keys and values, and hide what a shared row must not look at."""
        if not len(self._places):
            return keys, values, hidden
        source, wanted = parties
        old_values = self._codes[f"shared rows/{wanted}/{kind}"]
        old_keys = self._codes[f"shared rows/{source}/{kind}"] if is_within else old_values
        if hidden is not None:
            hidden = torch.cat([hidden, self._batch[:, None] == self._places[None, :]], dim=1)
        if not is_within:
            own = self._codes[f"own rows/{wanted}/{kind}"]
            old_keys = old_values = torch.cat([old_values, own])
            if hidden is not None:
                hidden = torch.cat([hidden, torch.zeros(len(hidden), len(own), dtype=torch.bool)], dim=1)
        return torch.cat([keys, old_keys]), torch.cat([values, old_values]), hidden

    def add(self, codes: Sequence[Mapping[str, torch.Tensor]]) -> None:
        """Remember a batch, and forget what is beyond the size."""
        count = len(self._batch)
        self._places = torch.cat([self._places, self._batch])[-self._size :]
        for place, one in enumerate(codes):
            for kind, values in one.items():
                for name, rows in (("shared rows", values[:count]), ("own rows", values[count:])):
                    key = f"{name}/{place}/{kind}"
                    known = self._codes.get(key, rows[:0].detach())
                    self._codes[key] = torch.cat([known, rows.detach()])[-self._size :]

    def state(self) -> dict[str, torch.Tensor]:
        """Return what a checkpoint needs."""
        return {"places": self._places, **self._codes}

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from a checkpoint."""
        self._codes = dict(tensors)
        self._places = self._codes.pop("places", torch.zeros(0, dtype=torch.int64))
