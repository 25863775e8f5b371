"""Play one party's part in a run, from handshake to goodbye. Every launch calls this and nothing else."""

from __future__ import annotations

from typing import Any

from colonnade import __version__
from colonnade.errors import ColonnadeError, ConfigError, RoleFailed, RunFolderError
from colonnade.session.handshake import agree_on_resume, greet, say_failed, say_goodbye
from colonnade.session.method import Holding, Result
from colonnade.session.session import Session

__all__ = ["play"]


def play(session: Session, holding: Holding, config: Any) -> Result:
    """Run this party's role function within a recorded session.

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
            version=__version__,
        )
        if stage not in method.stages:
            raise ConfigError(f"The method {method.name} has no stage '{stage}'. Known: {', '.join(method.stages)}.")
        _check_policy(session, holding)
        greet(session)
        agree_on_resume(session)
        result = method.stages[stage][session.role](session, holding, config)
        say_goodbye(session)
        return result
    except ColonnadeError as error:
        say_failed(session, error)
        raise
    except OSError as error:
        say_failed(session, error)
        raise RunFolderError(
            f"'{session.party}' could not write to its run folder at step {session.step} ({error.strerror}). "
            "Free some space or correct the permissions, then run the same command again: it resumes."
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


def _check_policy(session: Session, holding: Holding) -> None:
    policy, party = session.policy, session.party
    peers = {channel.peer_role for channel in session.all_channels}
    sends = [one for one in session.method.declarations if one.sender == session.role and one.receiver in peers]
    policy.check_run(party, session.method.name, (channel.peer for channel in session.all_channels), sends)
    if len(holding.split.train):
        # Scoring one new row is no run in the sense of these two rules; learning from few rows is.
        policy.check_shared_rows(party, len(holding.aligned))
        policy.check_earlier_runs(party, session.earlier_runs)
