"""Begin and end a session with every peer."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import warnings
from collections.abc import Mapping

from colonnade.errors import (
    CheckpointBroken,
    ColonnadeError,
    DamagedCheckpoint,
    HandshakeRefused,
    LedgerBroken,
    LedgersDisagree,
    OtherVersion,
    PeerFailed,
    PeerLost,
    PolicyRefused,
    RunFolderError,
    TableError,
)
from colonnade.messages import declaration_of
from colonnade.session.channel import Channel
from colonnade.session.checkpoints import highest_common
from colonnade.session.control import (
    CONTROL,
    AgreedField,
    Failed,
    Finished,
    Goodbye,
    HeldCheckpoints,
    Hello,
    ResumeFrom,
)
from colonnade.session.openings import attempts_at
from colonnade.session.session import Session
from colonnade.text import shown

__all__ = ["agree_on_resume", "greet", "note_other_versions", "say_failed", "say_goodbye"]

# Errors whose sentences may hold column names or paths, which are nobody else's business.
_LOCAL = (CheckpointBroken, LedgerBroken, RunFolderError, TableError)
# How many differing settings an error names; a run.toml that differs in more is another run altogether.
_NAMED = 20
_LONGEST_VERSION = 64


def greet(session: Session) -> dict[str, str]:
    """Compare run, roles and messages with every peer, and bind the channels to this encounter.

    Return by peer the versions of packages that differ from ours. They may: what counts is the wire version, which
    every frame carries, and the messages that both declare.
    """
    hello, others = _hello(session), {}
    for channel in session.all_channels:
        channel.send(hello)
    for channel in session.all_channels:
        theirs = channel.receive(Hello)
        _compare(session, channel, hello, theirs)
        channel.connect(hello.nonce, theirs.nonce)
        if theirs.version != hello.version:
            others[channel.peer] = shown(theirs.version, _LONGEST_VERSION)
    return others


def note_other_versions(session: Session, versions: Mapping[str, str]) -> None:
    """Write down and show which partners have another package than ours."""
    for peer, version in versions.items():
        session.ledger.mark("version", peer=peer, version=version)
        warnings.warn(
            f"'{session.party}' runs colonnade {session.method.version} and '{peer}' {version}. Both speak the same "
            "protocol, so the run goes on; the ledger keeps this note.",
            OtherVersion,
            stacklevel=2,
        )


def agree_on_resume(session: Session) -> None:
    """Find the highest step at which every party holds a sound checkpoint, and go back to it.

    The lead gathers the steps and announces the result, so parties that have no channel to each other agree too.
    """
    held: tuple[int, ...] = ()
    if session.checkpoints and session.allows_resume:
        held, damaged = session.checkpoints.examine()
        for broken in damaged:
            session.ledger.mark("damaged", step=broken)
            warnings.warn(
                f"The checkpoint of '{session.party}' at step {broken} is damaged; the run goes on from an earlier "
                "one that all parties have. Check the disk.",
                DamagedCheckpoint,
                stacklevel=2,
            )
    if session.role == session.lead:
        step = highest_common([held, *(set_of.receive(HeldCheckpoints).steps for set_of in session.all_channels)])
        for channel in session.all_channels:
            channel.send(ResumeFrom(step))
    else:
        lead = session.channel(session.lead)
        lead.send(HeldCheckpoints(held))
        step = lead.receive(ResumeFrom).step
        if step is not None and step not in held:
            raise HandshakeRefused(
                f"'{lead.peer}' wants to resume from step {step}, where '{session.party}' holds no checkpoint. "
                "Restart the run at all parties."
            )
    session.go_back_to(step)
    session.ledger.mark("began" if step is None else "resumed", step=session.step)
    attempts = attempts_at(session.ledger.read().entries, session.step)
    for channel in session.all_channels:
        channel.openings.attempts = attempts


def say_goodbye(session: Session) -> None:
    """Leave when every party keeps its result, after both ends of every channel compared what they saw.

    A party that was killed before its result was on disk needs all others once more. So each tells the lead that it has
    finished, and the lead's goodbye says that all have: from then on nobody needs anybody, and a peer that is suddenly
    gone is no longer a failure.
    """
    channels, heard = session.all_channels, {}
    if session.role == session.lead:
        for channel in channels:
            channel.receive(Finished)
        transcripts = {channel.peer: channel.transcript() for channel in channels}
    else:
        lead = session.channel(session.lead)
        lead.send(Finished())
        transcripts = {channel.peer: channel.transcript() for channel in channels}
        heard[lead.peer] = lead.receive(Goodbye)
    _mark_openings(session)
    session.ledger.mark("complete", step=session.step)
    for channel in channels:
        with contextlib.suppress(PeerLost):
            channel.send(Goodbye(*transcripts[channel.peer]))
    for channel in channels:
        theirs = heard.get(channel.peer) or _last_goodbye(channel)
        if theirs is None:
            session.ledger.mark("unconfirmed", peer=channel.peer)
            continue
        if (theirs.received, theirs.sent) != transcripts[channel.peer]:
            raise LedgersDisagree(
                f"'{session.party}' and '{channel.peer}' did not see the same messages. Do not rely on this run."
            )
        session.ledger.mark("disconnected", peer=channel.peer, connections=channel.connections)
    session.ledger.mark("closed", step=session.step)


def _last_goodbye(channel: Channel) -> Goodbye | None:
    try:
        return channel.receive(Goodbye)
    except PeerLost:
        return None
    except PeerFailed as failed:
        if not failed.returns:
            raise
        return None


def say_failed(session: Session, error: BaseException) -> None:
    """Tell every peer why this party stops, as far as they can still hear it."""
    if isinstance(error, PeerFailed):
        # Pass on who stopped first, so that parties without a channel to it learn the true cause.
        origin, step, cause, returns = error.party, error.step, error.cause, error.returns
    else:
        origin, step, cause = session.party, session.step, _cause(error)
        # Interrupted, cut off, or short of space: the same command at the same party goes on.
        returns = isinstance(error, PeerLost | OSError) or not isinstance(error, Exception)
    for channel in session.all_channels:
        try:
            channel.send(Failed(origin, step, cause, returns))
        except ColonnadeError:
            continue
    # What stopped this party may be the ledger itself; the error that is about to be raised matters more than its mark.
    with contextlib.suppress(ColonnadeError):
        _mark_openings(session)
        session.ledger.mark("failed", step=session.step, party=origin, cause=cause)


def _mark_openings(session: Session) -> None:
    """Record what this party decrypted for whom in this attempt at the run."""
    for channel in session.all_channels:
        found = channel.openings
        if found.counts:
            session.ledger.mark("openings", peer=channel.peer, messages=dict(found.counts), numbers=dict(found.numbers))


def _cause(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "its operator interrupted the run."
    if isinstance(error, OSError):
        return "it could not write to its run folder."
    # An unforeseen error's text may hold values from the table, so only its type leaves the party.
    if isinstance(error, PolicyRefused):
        return "its policy refuses this run."
    if isinstance(error, _LOCAL):
        return f"a {type(error).__name__} of its own; its operator sees the details."
    if isinstance(error, ColonnadeError):
        return shown(str(error))
    return f"an unforeseen {type(error).__name__}."


def _hello(session: Session) -> Hello:
    fields = tuple(
        AgreedField(name, hashlib.sha256(value.encode()).digest()[:16])
        for name, value in sorted(session.plan.fields().items())
    )
    schemas = b"".join(sorted(one.schema for one in (*map(declaration_of, CONTROL), *session.declarations)))
    return Hello(
        version=session.method.version,
        party=session.party,
        role=session.role,
        run=session.plan.name,
        stage=session.stage,
        fields=fields,
        messages=hashlib.sha256(schemas).digest(),
        nonce=secrets.token_bytes(16),
    )


def _compare(session: Session, channel: Channel, ours: Hello, theirs: Hello) -> None:
    me, you = f"'{session.party}'", f"'{channel.peer}'"
    runs = ""
    if ours.version != theirs.version:
        runs = f" {me} runs colonnade {ours.version} and {you} {shown(theirs.version, _LONGEST_VERSION)}."
    if (theirs.party, theirs.role) != (channel.peer, channel.peer_role):
        raise HandshakeRefused(
            f"{me} expected {channel.peer_role} {you} but was greeted by {shown(theirs.role, 64)} "
            f"'{shown(theirs.party, 64)}'. "
            "Check the partners' names and addresses."
        )
    if (ours.run, ours.stage) != (theirs.run, theirs.stage):
        raise HandshakeRefused(
            f"{me} is in run '{ours.run}' ({ours.stage}), {you} in run '{shown(theirs.run, 64)}' "
            f"({shown(theirs.stage, 64)}). "
            "Start the same run at both."
        )
    own = {field.name: field.digest for field in ours.fields}
    other = {field.name: field.digest for field in theirs.fields}
    differing = sorted(name for name in own.keys() | other.keys() if own.get(name) != other.get(name))
    if differing:
        named = ", ".join(shown(name, 64) for name in sorted(differing, key=lambda name: name not in own)[:_NAMED])
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        # A setting that only one of two versions has differs, whatever stands in the files.
        or_else = f"{runs} If it is the same already, install the same version at both." if runs else ""
        raise HandshakeRefused(
            f"{me} and {you} disagree on {named}{more}. Use the same run.toml at both parties.{or_else}"
        )
    if ours.messages != theirs.messages:
        raise HandshakeRefused(
            f"{me} and {you} declare different messages for {session.method.name}.{runs} Install the same version at "
            "both."
        )
    if theirs.nonce == ours.nonce:
        raise HandshakeRefused(f"{you} greeted {me} with an invalid nonce. Restart the run at all parties.")
