"""The hash-chained record of everything that crossed."""

from colonnade.ledger.entries import GENESIS, Entry
from colonnade.ledger.reader import Ledger, MessageTotal, compare
from colonnade.ledger.writer import LedgerWriter

__all__ = ["GENESIS", "Entry", "Ledger", "LedgerWriter", "MessageTotal", "compare"]
