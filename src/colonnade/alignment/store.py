"""What a party keeps of alignments: results to use again, and those cut short.

A result is only the party's own row numbers. An unfinished alignment also holds the party's secret, which is of no use
once it is finished, and is deleted then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import numpy as np
import numpy.typing as npt

from colonnade.crypto.blinding import draw_secret
from colonnade.session import write_whole

__all__ = ["AlignmentStore", "Unfinished", "identity_of"]

_KEPT = 8
# An alignment that nobody took up for so long is over, and its secret should be gone.
_FORGOTTEN_SECONDS = 30 * 24 * 3600


def identity_of(ids: Sequence[bytes], *facts: str) -> str:
    """Return what stands for a list of ids under given circumstances."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for one in ids:
        digest.update(len(one).to_bytes(4, "little") + one)
    return digest.hexdigest()


class AlignmentStore:
    """A folder of results and unfinished alignments; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def results(self, identity: str) -> tuple[bytes, ...]:
        """Return the names of all results for these ids."""
        if self._folder is None or not self._folder.is_dir():
            return ()
        return tuple(bytes.fromhex(path.name.split(".")[1]) for path in sorted(self._folder.glob(f"{identity}.*.rows")))

    def load(self, identity: str, result: bytes) -> npt.NDArray[np.int64]:
        """Return the row numbers of a result."""
        return np.frombuffer(self._path(identity, result).read_bytes(), "<i8").astype(np.int64)

    def save(self, identity: str, result: bytes, positions: npt.NDArray[np.int64]) -> None:
        """Keep a result, and only the last few for the same ids."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._path(identity, result), positions.astype("<i8").tobytes())
        written = sorted(self._folder.glob(f"{identity}.*.rows"), key=lambda path: path.stat().st_mtime)
        for path in written[:-_KEPT]:
            path.unlink()

    def unfinished(self, peer: str, identity: str) -> Unfinished:
        """Take up what was cut short with a partner, or begin anew."""
        if self._folder is None:
            return Unfinished.open(None, identity)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for state in self._folder.glob(f"*/unfinished-{peer}/state.json"):
            with contextlib.suppress(OSError):
                if time.time() - state.stat().st_mtime > _FORGOTTEN_SECONDS:
                    rmtree(state.parent)
        # By what it is about: other runs of this party may be finding shared rows at the same time.
        return Unfinished.open(self._folder / identity[:16] / f"unfinished-{peer}", identity)

    def _path(self, identity: str, result: bytes) -> Path:
        if self._folder is None:
            raise ValueError("this store keeps nothing")
        return self._folder / f"{identity}.{result.hex()}.rows"


@dataclass
class Unfinished:
    """One side of an alignment with one partner, piece by piece."""

    folder: Path | None
    identity: str
    secret: bytes = field(repr=False)
    salt: bytes = b""
    their_count: int = 0
    """How many ids the partner brings: who comes back must not bring more."""
    pieces: int = 0
    """How many pieces of this party's ids are done."""
    answered: int = 0
    """How many pieces of the partner's this party has answered."""
    order: npt.NDArray[np.int64] | None = None
    """The rows in the random order in which they are sent."""

    @classmethod
    def open(cls, folder: Path | None, identity: str) -> Unfinished:
        """Read the state of an alignment of the same ids in the same run, if there is one."""
        if folder is not None and (folder / "state.json").exists():
            state = json.loads((folder / "state.json").read_text())
            if state["identity"] == identity:
                order = np.frombuffer((folder / "order").read_bytes(), "<i8").astype(np.int64)
                secret, salt = bytes.fromhex(state["secret"]), bytes.fromhex(state["salt"])
                pieces, answered = (len(list(folder.glob(f"{name}-??????"))) for name in ("piece", "asked"))
                return cls(folder, identity, secret, salt, state["their_count"], pieces, answered, order)
        return cls(folder, identity, draw_secret())

    @property
    def sent_order(self) -> npt.NDArray[np.int64]:
        """Return the rows in the order in which they are sent, once that is drawn."""
        if self.order is None:
            raise ValueError("the alignment was not begun")
        return self.order

    def begin(self, salt: bytes, order: npt.NDArray[np.int64], their_count: int) -> None:
        """Start from the first piece, with a new secret."""
        self.discard()
        self.secret, self.salt, self.order, self.their_count = draw_secret(), salt, order, their_count
        self.pieces = self.answered = 0
        if self.folder is not None:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700)
            write_whole(self.folder / "order", order.astype("<i8").tobytes())
            state = {
                "identity": self.identity,
                "secret": self.secret.hex(),
                "salt": salt.hex(),
                "their_count": their_count,
            }
            write_whole(self.folder / "state.json", json.dumps(state).encode())

    def keep(self, number: int, outputs: bytes) -> None:
        """Keep what a piece of this party's ids gave."""
        self.pieces = number + 1
        if self.folder is not None:
            write_whole(self.folder / f"piece-{number:06d}", outputs)

    def kept(self) -> list[bytes]:
        """Return what all pieces that are done gave."""
        if self.folder is None:
            return []
        return [(self.folder / f"piece-{number:06d}").read_bytes() for number in range(self.pieces)]

    def note_asked(self, number: int, digest: bytes) -> None:
        """Keep a digest of what the partner asked in a piece."""
        self.answered = max(self.answered, number + 1)
        if self.folder is not None:
            write_whole(self.folder / f"asked-{number:06d}", digest)

    def asked(self, number: int) -> bytes | None:
        """Return the digest of what the partner asked in a piece before this was cut short, if it did."""
        path = None if self.folder is None else self.folder / f"asked-{number:06d}"
        return path.read_bytes() if path is not None and path.exists() else None

    def discard(self) -> None:
        """Forget the secret and everything made with it."""
        if self.folder is not None and self.folder.exists():
            # First what makes the rest count: a kill in between must not leave half of it to be taken up.
            (self.folder / "state.json").unlink(missing_ok=True)
            rmtree(self.folder)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()
