"""Each party brings a network of its own in place of the configured encoder.

A module takes one row of encoded columns and returns one row of activations. Its width may differ between parties.
Run it with `python examples/own_network.py`.
"""

from __future__ import annotations

import torch
from torch import nn

import colonnade as cn
from colonnade.datasets import breast_cancer
from colonnade.training import Inputs


class WithShortcut(nn.Module):
    """One hidden layer, with a linear path beside it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.wide = nn.Linear(inputs, 32)
        self.narrow = nn.Linear(32, outputs)
        self.shortcut = nn.Linear(inputs, outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the activations that cross."""
        return self.narrow(torch.relu(self.wide(rows))) + self.shortcut(rows)


def main() -> None:
    frames = breast_cancer()
    tables = {
        "hospital": cn.PartyTable(frames["hospital"], id="patient", label="diagnosis", name="hospital"),
        "laboratory": cn.PartyTable(frames["laboratory"], id="patient", name="laboratory"),
    }
    # Categories and missing cells make the encoded table wider than the raw one. Here all columns are plain numbers.
    widths = {party: Inputs.fit(table).width for party, table in tables.items()}

    torch.manual_seed(0)  # the initial weights are drawn here, in one thread, so the run repeats
    parties = {
        "hospital": cn.Party(tables["hospital"], module=nn.Sequential(nn.Linear(widths["hospital"], 8), nn.Tanh())),
        "laboratory": cn.Party(tables["laboratory"], module=WithShortcut(widths["laboratory"], 12)),
    }
    config = cn.SplitNN(head_hidden=(16,), batch_size=64, learning_rate=0.003, epochs=15)
    run = cn.simulate(config, parties, seed=7)
    print(f"AUC {run.metrics['auc']:.3f} on {run.rows['test']} held-out rows")

    # The run keeps weights, not code. To predict, pass modules of the same shape again.
    scores = run.predict(parties)
    print(f"{len(scores)} shared rows scored; columns: {', '.join(scores.columns)}")


if __name__ == "__main__":
    main()
