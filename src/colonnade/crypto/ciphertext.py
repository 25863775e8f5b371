"""What every ciphertext type has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Ciphertext"]


class Ciphertext(ABC):
    """Content that only a key owner can read.

    A message declared ENCRYPTED carries nothing but these, so the codec asks two things of them: to become bytes and
    to be rebuilt, with every check, from a stranger's bytes.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the hidden array, for the ledger."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the canonical bytes of this ciphertext."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Rebuild a ciphertext; raise ValueError for anything that is not one."""
