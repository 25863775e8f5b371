"""Checkpoints at agreed steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from colonnade.errors import CheckpointBroken
from colonnade.session.model_part import ModelPart

__all__ = ["CheckpointStore", "highest_common"]

# Parties in lockstep are at most one checkpoint apart; one more is kept in case the newest is damaged.
_KEPT = 3
_NAME = re.compile(r"step-(\d{9})\.json")


class CheckpointStore:
    """One party's checkpoints of one run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, step: int, state: ModelPart) -> None:
        """Write a checkpoint, then forget those no longer needed."""
        state.save(self._folder, f"step-{step:09d}")
        written = self._written()
        # Later steps come from before the run went back; kept, they would push out what is made from now on.
        self._drop(one for one in written if one > step)
        self._drop([one for one in written if one <= step][:-_KEPT])

    def forget_after(self, step: int) -> None:
        """Drop what was made after a step that the run goes back to.

        Secret shares are drawn anew on the way, so that an old checkpoint of a later step does not belong to what the
        others make of the same step now.
        """
        self._drop(one for one in self._written() if one > step)

    def load(self, step: int) -> ModelPart:
        """Read the checkpoint of one step."""
        return ModelPart.load(self._folder, f"step-{step:09d}")

    def sound_steps(self) -> tuple[int, ...]:
        """Return the steps of all checkpoints that can be read."""
        return self.examine()[0]

    def examine(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the steps of checkpoints that can be read, and of those that do not match their digests."""
        sound, damaged = [], []
        for step in self._written():
            try:
                self.load(step)
            except CheckpointBroken:
                damaged.append(step)
            else:
                sound.append(step)
        return tuple(sound), tuple(damaged)

    def _drop(self, steps: Iterable[int]) -> None:
        for step in steps:
            # The JSON file makes a checkpoint count, so it goes first.
            (self._folder / f"step-{step:09d}.json").unlink()
            (self._folder / f"step-{step:09d}.safetensors").unlink(missing_ok=True)

    def _written(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match.group(1)) for match in found if match)


def highest_common(held: list[tuple[int, ...]]) -> int | None:
    """Return the highest step in all lists, or None.

    >>> highest_common([(10, 20), (10, 20, 30)])
    20
    """
    common = set(held[0]).intersection(*held[1:])
    return max(common, default=None)
