"""A gated recurrent unit that passes over absent items and whose weights come from a generator of the caller's."""

from __future__ import annotations

import torch
from torch import nn

from colonnade.nn.mlp import seeded_linear

__all__ = ["GRU"]


class GRU(nn.Module):
    """The recurrence of ``torch.nn.GRU``, of one layer, with its weights in the same order (reset, update, new).

    torch's own draws from the global generator when it is made, and cannot pass over an item in the middle.
    """

    def __init__(self, inputs: int, outputs: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.outputs = outputs
        self.from_item = seeded_linear(inputs, 3 * outputs, generator, dtype)
        self.from_state = seeded_linear(outputs, 3 * outputs, generator, dtype)

    def forward(
        self, items: torch.Tensor, state: torch.Tensor | None = None, is_there: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the state after the last item: (rows, items, inputs) becomes (rows, outputs).

        ``state`` is what a row begins with, zero unless given. An item that is not there leaves the state as it is.
        """
        if state is None:
            state = items.new_zeros(len(items), self.outputs)
        if is_there is not None:
            items = items.masked_fill(~is_there.unsqueeze(-1), 0.0)
        said: torch.Tensor = self.from_item(items)
        for place in range(items.shape[1]):
            item_reset, item_update, item_new = said[:, place].chunk(3, dim=1)
            state_reset, state_update, state_new = self.from_state(state).chunk(3, dim=1)
            update = torch.sigmoid(item_update + state_update)
            new = torch.tanh(item_new + torch.sigmoid(item_reset + state_reset) * state_new)
            moved = new + update * (state - new)
            state = moved if is_there is None else torch.where(is_there[:, place, None], moved, state)
        return state
