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

from colonnade.crypto.blinding import MARK_BYTES, draw_secret
from colonnade.session import write_whole

__all__ = ["AlignmentStore", "Unfinished", "identity_of", "marks_of"]

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
    pieces: int = 0
    """How many pieces are done."""
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
                return cls(folder, identity, secret, salt, len(list(folder.glob("piece-??????"))), order)
        return cls(folder, identity, draw_secret())

    @property
    def sent_order(self) -> npt.NDArray[np.int64]:
        """Return the rows in the order in which they are sent, once that is drawn."""
        if self.order is None:
            raise ValueError("the alignment was not begun")
        return self.order

    def begin(self, salt: bytes, order: npt.NDArray[np.int64]) -> None:
        """Start from the first piece, with a new secret."""
        self.discard()
        self.secret, self.salt, self.pieces, self.order = draw_secret(), salt, 0, order
        if self.folder is not None:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700)
            write_whole(self.folder / "order", order.astype("<i8").tobytes())
            state = {"identity": self.identity, "secret": self.secret.hex(), "salt": salt.hex()}
            write_whole(self.folder / "state.json", json.dumps(state).encode())

    def keep(self, number: int, own: bytes, theirs: bytes) -> None:
        """Keep what a piece gave: marks of this party's ids, and of the partner's."""
        self.pieces = number + 1
        if self.folder is not None:
            write_whole(self.folder / f"piece-{number:06d}", len(own).to_bytes(8, "little") + own + theirs)

    def answered(self, number: int) -> bytes | None:
        """Return the marks that this party gave its partner for a piece before it was cut short, if it did."""
        path = None if self.folder is None else self.folder / f"piece-{number:06d}"
        return path.read_bytes()[8:] if path is not None and path.exists() else None

    def kept(self, first_missing: int) -> tuple[list[bytes], list[bytes]]:
        """Return the marks of all pieces before one."""
        own, theirs = [], []
        for number in range(first_missing if self.folder is not None else 0):
            content = (self.folder / f"piece-{number:06d}").read_bytes() if self.folder is not None else b""
            size = int.from_bytes(content[:8], "little")
            own.append(content[8 : 8 + size])
            theirs.append(content[8 + size :])
        return own, theirs

    def discard(self) -> None:
        """Forget the secret and everything made with it."""
        if self.folder is not None and self.folder.exists():
            # First what makes the rest count: a kill in between must not leave half of it to be taken up.
            (self.folder / "state.json").unlink(missing_ok=True)
            rmtree(self.folder)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()


def marks_of(content: Sequence[bytes]) -> npt.NDArray[np.bytes_]:
    """Return marks as an array that numpy can sort; a mark of all zeros at its end compares like any other."""
    return np.frombuffer(b"".join(content), dtype=f"S{MARK_BYTES}")
