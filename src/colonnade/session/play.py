"""Play one party's part in a run, from handshake to goodbye. Every launch goes through this and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from colonnade.errors import ColonnadeError, ConfigError, RoleFailed, RunFolderError, remedy
from colonnade.messages import ANYONE
from colonnade.session.handshake import agree_on_resume, greet, note_other_versions, say_failed, say_goodbye
from colonnade.session.method import Holding, Result
from colonnade.session.plan import ALIGN
from colonnade.session.session import Session

__all__ = ["play", "taking_part"]


@contextmanager
def taking_part(session: Session) -> Iterator[None]:
    """Check the policy and greet the peers; in the end say goodbye to them.

    What must outlast the run is kept within the block: a party that has said goodbye must not need anyone any more.
    When anything goes wrong here, the peers are told which party stopped, at which step and why; then the error is
    raised.
    """
    method, stage = session.method, session.stage
    try:
        session.ledger.mark(
            "opened",
            party=session.party,
            role=session.role,
            run=session.plan.name,
            digest=session.plan.digest(),
            method=method.name,
            stage=stage,
            version=method.version,
        )
        if stage not in (ALIGN, *method.stages):
            raise ConfigError(f"The method {method.name} has no stage '{stage}'. Known: {', '.join(method.stages)}.")
        _check_policy(session)
        note_other_versions(session, greet(session))
        yield
        say_goodbye(session)
    except ColonnadeError as error:
        say_failed(session, error)
        raise
    except OSError as error:
        say_failed(session, error)
        what_to_do = remedy(error, "Free some space or correct the permissions")
        raise RunFolderError(
            f"'{session.party}' could not write to its run folder at step {session.step} ({error.strerror}). "
            f"{what_to_do}, then run the same command again: it resumes."
        ) from error
    except Exception as error:
        say_failed(session, error)
        raise RoleFailed(
            f"{session.role} '{session.party}' failed at step {session.step} with an unforeseen "
            f"{type(error).__name__}. This is a fault in colonnade or in a module you passed in; --traceback shows it."
        ) from error
    except BaseException as interrupt:
        say_failed(session, interrupt)
        raise
    finally:
        session.ledger.close()


def play(session: Session, holding: Holding, config: Any) -> Result:
    """Run this party's role function on what it brings, from the step that all parties have."""
    if len(holding.split.train):
        # Scoring one new row is no run in the sense of this rule; learning from few rows is.
        session.policy.check_shared_rows(session.party, len(holding.aligned))
    _count_scored_rows(session, holding)
    agree_on_resume(session)
    return session.method.stage(session.stage).roles[session.role](session, holding, config)


def _check_policy(session: Session) -> None:
    sends = [
        one
        for channel in session.all_channels
        for one in session.declarations_with(channel.peer)
        if one.sender in (session.role, ANYONE) and one.receiver in (channel.peer_role, ANYONE)
    ]
    peers = (channel.peer for channel in session.all_channels)
    session.policy.check_run(session.party, session.method.name, peers, sends)
    is_run = session.stage not in ("predict", ALIGN)
    if is_run:
        # Only training is a run in the sense of this rule. Checked before alignment, which shows ids.
        session.policy.check_earlier_runs(session.party, session.earlier_runs)
    if not session.method.has_rows(session.role) and session.stage != ALIGN:
        is_asked = any(one.asks_for for one in session.declarations)
        scores = session.method.stage(session.stage).scores or is_asked
        session.policy.check_role_without_rows(session.party, session.role, learns=is_run, scores=scores)


def _count_scored_rows(session: Session, holding: Holding) -> None:
    """Count the shared rows that this party helps to score, for those who get the scores."""
    if not session.method.stage(session.stage).scores:
        return
    receivers = session.method.scored_for(session.plan)
    for peer in (channel.peer for channel in session.all_channels):
        if peer in receivers and session.party not in receivers:
            session.scored_rows.count(peer, len(holding.pair(peer).aligned))
