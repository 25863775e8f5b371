"""The hash-chained record of everything that crossed."""

from colonnade.ledger.entries import GENESIS, Entry
from colonnade.ledger.locks import lock
from colonnade.ledger.overview import MessageTotal
from colonnade.ledger.reader import Ledger, compare
from colonnade.ledger.writer import LedgerWriter

__all__ = ["GENESIS", "Entry", "Ledger", "LedgerWriter", "MessageTotal", "compare", "lock"]
