"""What must hold before anything is learned."""

from __future__ import annotations

from colonnade.errors import ConfigError
from colonnade.methods.fedcvt.config import FEDCVT, FedCVT
from colonnade.methods.fedcvt.rows import Batches
from colonnade.session import Session

__all__ = ["check_shared_rows", "fit_is_hidden", "hidden_rows"]


def check_shared_rows(
    session: Session, config: FedCVT, batches: Batches, anchors: int, outputs: int, parties: int
) -> None:
    """Refuse level 2 with so few shared rows in a batch, or as anchors, that attention could be told from scores."""
    if not config.is_sealed or FEDCVT not in config.candidates or parties == 1 or not config.estimate:
        return
    # Scores of each missing party's own head, and of the joint one.
    needed = outputs * parties
    fewest = min(batches.smallest, anchors)
    if fewest <= needed:
        raise ConfigError(
            f"Level 2 needs more than {needed} shared training rows in every batch and as anchors: from fewer, "
            f"'{session.party}' could work out which shared rows a partner's unmatched rows are like. There are "
            f"{fewest}. Share more rows, raise config.batch_size or config.anchors, or leave out 'fedcvt' from "
            "config.candidates."
        )
    if fewest < config.least_keys + 1:
        raise ConfigError(
            f"Level 2 spreads attention over at least {config.least_keys:g} shared rows (config.least_keys); a batch, "
            f"or the anchors, have {fewest}. Share more rows."
        )


def hidden_rows(columns: int) -> int:
    """Return how many rows of a partner must at least take part, less one, for its attention to stay unknown.

    Each of so many scores gives one equation about the attention of a row; half as many again would already do.
    """
    return 2 * columns


def fit_is_hidden(config: FedCVT, shared_rows: int, parties: int) -> bool:
    """Tell whether the fit terms can be had at level 2 without giving attention among shared rows away."""
    if config.sealed_fit == "off" or parties != 2 or not config.estimate:
        return False
    return shared_rows > 2 * max(config.width_of(kind) for kind in config.kinds)
