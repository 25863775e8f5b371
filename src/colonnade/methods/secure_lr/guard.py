"""The guard of a feature holder's columns: how many numbers about a row may be opened, over all runs with a partner.

Every epoch but the first opens what a feature holder's columns add to a row's scores, and so does scoring the row. Such
numbers are linear combinations of the row's encoded columns. As many as the columns have rank span them, and then
two-valued columns can be found exactly by a label holder that knows no row at all: independent components, rounded and
projected on the span. With at most half the rank that finds nothing; benchmarks/secure_lr_leaks.py plays it.

So a run is refused if the numbers it opens about a row, with those of earlier runs, are more than half the rank. A
first run of at most two epochs is let pass as long as it opens fewer numbers than the rank. A run that is taken up
again opens numbers once more. With an honest partner they are the same, but nothing shows that: one that trains on
other labels each time gets others. So they count, and all together stay below the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colonnade.errors import LeakRefused
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.session import Channel, Session

__all__ = ["EPOCHS", "chosen_extent", "check_repeating", "check_scoring", "check_training", "is_allowed"]

EPOCHS = (2, 1)
"""The numbers of epochs that are tried in turn where the settings leave it open."""


def is_allowed(rank: int, scores: int, opened: int, epochs: int) -> bool:
    """Tell whether a run keeps to the rule, after earlier ones that opened so many numbers about a row."""
    needed = epochs * scores
    return 2 * (opened + needed) <= rank or (needed < rank and epochs <= EPOCHS[0] and not opened)


def chosen_extent(config: SecureLR, scores: int, brought: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many scores and epochs there are: the most that all ranks, after what was opened, allow.

    With fewer scores than classes ask for, the partners' columns tell only the most different classes apart.
    """
    epochs = (config.epochs,) if config.epochs else EPOCHS
    tried = [*((scores, one) for one in epochs), *((one, epochs[-1]) for one in range(scores - 1, 0, -1))]
    if not config.allow_leak:
        for one in tried:
            if all(is_allowed(rank, one[0], opened, one[1]) for rank, opened in brought):
                return one
    return tried[0]


def check_training(
    session: Session, peer: Channel, config: SecureLR, rank: int, extent: tuple[int, int], opened: int
) -> None:
    """Refuse training after which the label holder could work out columns, unless all parties agreed to it."""
    scores, epochs = extent
    if is_allowed(rank, scores, opened, epochs):
        return
    most = max((one for one in range(1, epochs) if is_allowed(rank, scores, opened, one)), default=0)
    remedy = "Use other rows, or the model of an earlier run." if opened else "Bring at least 2 independent columns."
    _refuse(
        session,
        peer,
        config,
        f"Training and scoring would open {epochs * scores} numbers about each row of '{session.party}' to "
        f"'{peer.peer}'{f' after {opened} in earlier runs' if opened else ''}. Its encoded columns have rank {rank}: "
        f"from more than half as many numbers columns can be worked out. "
        f"{f'Lower config.epochs to {most}.' if most else remedy}",
        rank=rank,
        scores=scores,
        opened=opened,
        epochs=epochs,
    )


def check_repeating(session: Session, peer: Channel, config: SecureLR, rank: int, needed: int, opened: int) -> None:
    """Refuse to take up a run again after which the label holder could work out columns if it deviates."""
    if opened + needed >= rank:
        _refuse(
            session,
            peer,
            config,
            f"To go on with this run opens {needed} numbers once more about each row of '{session.party}' to "
            f"'{peer.peer}', after {opened}. Its encoded columns have rank {rank}: from as many numbers columns can be "
            "worked out, if these were others than before. Use other rows, or the model of an earlier run.",
            rank=rank,
            needed=needed,
            opened=opened,
        )


def check_scoring(session: Session, peer: Channel, config: SecureLR, rank: int, scores: int, opened: int) -> None:
    """Refuse to score rows about which other runs' models have opened enough."""
    if opened and 2 * (opened + scores) > rank:
        _refuse(
            session,
            peer,
            config,
            f"Other runs have opened {opened} numbers about some of these rows of '{session.party}' to '{peer.peer}', "
            f"and scoring them would open {scores} more. Its encoded columns have rank {rank}: from more than half as "
            "many numbers columns can be worked out. Score the rows with a model that scored them before, or other "
            "rows.",
            rank=rank,
            scores=scores,
            opened=opened,
        )


def _refuse(session: Session, peer: Channel, config: SecureLR, why: str, **facts: Any) -> None:
    if not config.allow_leak:
        raise LeakRefused(f"{why} With allow_leak = true all parties accept it, and every ledger says so.")
    what = "the label holder can work out a feature holder's columns from what they add to scores"
    session.ledger.mark("override", partner=peer.peer, guard="contributions", what=what, **facts)
