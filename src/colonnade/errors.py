"""Every exception of colonnade.

::

    ColonnadeError
    ├── UsageError                  the user can fix it; exit code 2
    │   ├── ConfigError             a setting in run.toml, party.toml or a constructor
    │   ├── TableError              a party's table: file, column, id, label, type
    │   ├── AlignmentError          too few or no shared rows
    │   ├── LeakRefused             settings under which a partner could work out what must stay hidden
    │   ├── RunFolderError          a run folder that is missing, unfinished or taken
    │   └── DeclarationError        a message or method declared wrongly (a programmer's mistake)
    ├── PolicyRefused               this party's policy forbids it; exit code 3
    ├── ProtocolError               what a peer did; exit code 4
    │   ├── FrameRefused            bytes that are not a valid frame of this run
    │   ├── OutOfStep               a valid message, but not the one this step expects
    │   ├── WrongContent            right message, wrong shape, type or non-finite values
    │   ├── KeyRefused              a partner's public key that cannot protect anything
    │   │   └── KeyTooSmall         one of fewer bits than agreed
    │   ├── CiphertextRefused       a ciphertext under another key, or none at all
    │   ├── OpeningRefused          a decryption for a partner that the method does not ask for
    │   ├── HandshakeRefused        parties disagree on version, run or roles
    │   ├── PeerFailed              a peer stopped with an error of its own and told us
    │   ├── PeerLost                a peer went away without a word
    │   └── Deadlock                every party waits for another
    ├── LedgerBroken                a ledger that was changed after it was written; exit code 5
    │   ├── LedgerUnfinished        intact so far, but never closed
    │   └── LedgersDisagree         two parties' ledgers of one run tell different stories
    ├── CheckpointBroken            a checkpoint or model file that does not match its digest; exit code 6
    ├── TrainingFailed              a loss that is no longer a number; exit code 6
    │   └── OutOfRange              a number that is not finite, or too large to be encrypted
    │       └── SlotOverflow        a sum or product that could leave its place in a ciphertext
    ├── EngineFailed                heavy local work failed or lost its workers again and again; exit code 1
    └── RoleFailed                  a role function raised something unforeseen; exit code 1

A message says what happened, where (party, role, step) and what to do. It never contains a value from a party's data:
only counts, shapes, names and fingerprints.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "AlignmentError",
    "CheckpointBroken",
    "CiphertextRefused",
    "ColonnadeError",
    "ConfigError",
    "DamagedCheckpoint",
    "Deadlock",
    "DeclarationError",
    "EngineFailed",
    "FrameRefused",
    "HandshakeRefused",
    "KeyRefused",
    "KeyTooSmall",
    "LeakRefused",
    "LedgerBroken",
    "LedgerUnfinished",
    "LedgersDisagree",
    "OpeningRefused",
    "OtherVersion",
    "OutOfRange",
    "OutOfStep",
    "PeerFailed",
    "PeerLost",
    "PolicyRefused",
    "ProtocolError",
    "RoleFailed",
    "RunFolderError",
    "SlotOverflow",
    "TableError",
    "TrainingFailed",
    "UsageError",
    "WrongContent",
    "did_you_mean",
    "remedy",
]


class ColonnadeError(Exception):
    """The root of all errors colonnade raises on purpose."""

    exit_code = 1


class UsageError(ColonnadeError):
    """Something the user gave cannot be used as it is."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, has the wrong type or lies outside its range."""


class TableError(UsageError):
    """A party's table cannot be read or does not have what was asked of it."""


class AlignmentError(UsageError):
    """The parties' tables do not share enough rows."""


class LeakRefused(UsageError):
    """Settings under which a partner could work out what must stay hidden."""


class RunFolderError(UsageError):
    """A run folder is missing, unfinished, or would be overwritten."""


class DeclarationError(UsageError):
    """A message, record or method is declared in a way that cannot work."""


class PolicyRefused(ColonnadeError):
    """This party's own policy forbids what the run asks."""

    exit_code = 3


class ProtocolError(ColonnadeError):
    """A peer did something the protocol does not allow, or stopped."""

    exit_code = 4


class FrameRefused(ProtocolError):
    """Bytes arrived that are not a valid frame of this run."""


class OutOfStep(ProtocolError):
    """A declared message arrived where another was expected."""


class WrongContent(ProtocolError):
    """The expected message arrived with content this step cannot accept."""


class KeyRefused(ProtocolError):
    """A public key is broken or careless, so what is encrypted under it would not be hidden."""


class KeyTooSmall(KeyRefused):
    """A public key has fewer bits than the parties agreed on."""


class CiphertextRefused(ProtocolError):
    """A ciphertext belongs to another key, to another layout, or to no key at all."""


class OpeningRefused(ProtocolError):
    """A partner was to have something decrypted once more than the method asks for, or outside of it."""


class HandshakeRefused(ProtocolError):
    """The parties do not agree on version, run or roles."""


class PeerFailed(ProtocolError):
    """A peer stopped with an error and said so."""

    def __init__(self, party: str, step: int, cause: str, *, returns: bool = False) -> None:
        super().__init__(f"'{party}' stopped at step {step}: {cause}")
        self.party, self.step, self.cause = party, step, cause
        self.returns = returns
        """Whether the run can go on as soon as all parties are there again, with nothing changed."""


class PeerLost(ProtocolError):
    """A peer is gone and said nothing."""


class Deadlock(ProtocolError):
    """Every party waits for another, so none can go on."""


class LedgerBroken(ColonnadeError):
    """A ledger does not follow from its own entries."""

    exit_code = 5


class LedgerUnfinished(LedgerBroken):
    """A ledger is intact as far as it goes but was never closed."""


class LedgersDisagree(LedgerBroken):
    """Two parties' ledgers of one run do not tell the same story."""


class CheckpointBroken(ColonnadeError):
    """A checkpoint or model file does not match the digest written beside it."""

    exit_code = 6


class OtherVersion(UserWarning):
    """A partner has another version of colonnade, one that speaks the same protocol."""


class FewRowsShared(UserWarning):
    """Ids look as if more rows were shared than were found."""


class DamagedCheckpoint(UserWarning):
    """A checkpoint was passed over because it does not match its digest; an earlier one is used."""


class TrainingFailed(ColonnadeError):
    """Training cannot go on, for example because the loss is no longer finite."""

    exit_code = 6


class OutOfRange(TrainingFailed):
    """A number is not finite, or lies outside the range agreed for encrypted arithmetic."""


class SlotOverflow(OutOfRange):
    """A sum or product could leave its place in a ciphertext, so it is not computed."""


class EngineFailed(ColonnadeError):
    """Heavy local work failed, or its workers died again and again."""


class RoleFailed(ColonnadeError):
    """A role function raised an error nobody foresaw."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a suggestion sentence, or the list of known names when nothing is close.

    >>> did_you_mean("epoch", ["epochs", "seed"])
    "Did you mean 'epochs'?"
    >>> did_you_mean("lable", ["label", "table"])
    "Did you mean 'label'?"
    >>> did_you_mean("zzz", ["b", "a"])
    'Known: a, b.'
    """
    names = sorted(known)
    close = get_close_matches(given, names, n=3, cutoff=0.6)
    if close:
        # Swapped letters are the likeliest slip, though difflib does not count them so.
        likeliest = max(close, key=lambda name: sorted(name) == sorted(given))
        return f"Did you mean '{likeliest}'?"
    return f"Known: {', '.join(names)}." if names else "There are none to choose from."


def remedy(error: OSError, otherwise: str) -> str:
    """Say what helps against an error of the operating system; too many open files are no full disk.

    >>> remedy(OSError(errno.ENOSPC, ""), "Free some space")
    'Free some space'
    >>> remedy(OSError(errno.EMFILE, ""), "Free some space").split(",")[0]
    "Raise the limit on open files and connections ('ulimit -n 4096')"
    """
    return _REMEDIES.get(error.errno or 0, otherwise)


_REMEDIES = {
    errno.EMFILE: "Raise the limit on open files and connections ('ulimit -n 4096'), and if you listen for partners "
    "let a firewall keep all others from the port",
    errno.ENFILE: "End what holds so many files and connections open on this machine",
}
