"""One party of a real run, in its own process: its home, its run folder and its line to partners elsewhere."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade import alignment
from colonnade.data import PartyTable
from colonnade.errors import ConfigError, PeerFailed, PeerLost, RunFolderError
from colonnade.launch.home import PartyHome, read_party_home, read_run_file, table_in_words
from colonnade.launch.identity import HomeRenewals, activate_next_identity, load_identity, load_partners
from colonnade.launch.party_folder import ELSEWHERE, PartyFolder, earlier_folder, next_prediction
from colonnade.launch.run import Run, make_run
from colonnade.launch.run_folder import LAUNCHED_APART, RunFolder
from colonnade.launch.status import StatusFile, Watcher
from colonnade.launch.take_part import peers_of, take_part
from colonnade.ledger import LedgerWriter
from colonnade.messages import Declaration, declaration_of, warnings_of
from colonnade.methods import method_named
from colonnade.reports import Consent, PartyRun, check_format
from colonnade.session import Observer, Participant, RunPlan, write_json
from colonnade.training import differences_of
from colonnade.transport.grpc import Endpoint, GrpcLink

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Joining", "check_part", "join", "take_part_remotely"]

# A party that keeps its result waits this long for partners that may need it; after that, they have left too.
_FAREWELL_SECONDS = 30.0
_STATUS_SECONDS = 0.5
_PAUSE_SECONDS = 0.2
_LAST_WORDS_SECONDS = 1.0


def join(
    run_file: str | Path,
    home: str | Path = ".",
    *,
    consent: str | Callable[[Joining], str] | None = None,
    stage: str | None = None,
    threshold: float | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    compare: bool = False,
    observer: Observer | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Play one party of a real run: that of this home, with partners who do the same in theirs.

    ``run_file`` is what all parties agreed on. ``consent`` says in words who agreed to what leaves, and is kept with
    the run; or it is a function that is shown the `Joining`, with all messages it will send, and returns such words or
    raises. Without it, the policy in party.toml must agree (``consent = "policy"``). The call returns when the run is
    complete: it waits for partners, also for those that were lost, and goes on from the last checkpoint that all have;
    the same call again takes up a run that was interrupted here. ``folder`` is ``runs/NAME`` in the home by default.
    ``threshold`` stands for that in ``run.toml``; only the party with the labels uses it. ``observer`` is told how
    training goes, ``watcher`` how the connection to partners does. The run has this party's things only.
    """
    file = Path(run_file)
    plan, own = read_run_file(file, stage).at_threshold(threshold), read_party_home(Path(home))
    check_part(plan, own.name)
    run_folder = RunFolder(Path(folder or own.folder / "runs" / plan.folder_name), file.read_bytes())
    with run_folder.held(overwrite=overwrite):
        joining = Joining(plan, own, run_folder, watcher or Watcher())
        if not joining.is_finished:
            joining.agree(consent)
            return joining.run(observer=observer, compare=compare)
        joining.watcher.told(f"This run is finished; its report is written again from {run_folder.path}.")
        return joining.complete()


def check_part(plan: RunPlan, party: str) -> None:
    """Refuse a party that has nothing to do in a stage."""
    method = method_named(plan.method)
    absent = [role.name for role in method.roles if role.name not in method.stage(plan.stage).roles]
    if party not in plan.parties and absent:
        raise ConfigError(
            f"'{party}' has nothing to do in the stage {plan.stage} of the run '{plan.name}': {' and '.join(absent)} "
            f"takes no part in it. Only {' and '.join(plan.parties)} give this command."
        )
    plan.role_of(party)


class Joining:
    """One party that is about to take part in a run with partners elsewhere, or does."""

    def __init__(self, plan: RunPlan, home: PartyHome, folder: RunFolder, watcher: Watcher | None = None) -> None:
        """Check what can be checked before anything is opened: roles, key, partners."""
        self.plan, self.home, self.watcher = plan, home, watcher or Watcher()
        self._method = method_named(plan.method)
        self._method.check_roles(plan)
        self._run_folder, self._folder = folder, PartyFolder(folder.path)
        self._peers = peers_of(self._method, plan, home.name)
        activate_next_identity(home.folder)
        self._identity = load_identity(home.folder, home.name)
        self._partners = load_partners(home, self._peers)
        self._consent: str | None = None
        self.notes: tuple[str, ...] = ()
        """How new rows that this party brings to be scored differ from those of training."""

    @property
    def is_finished(self) -> bool:
        """Tell whether only the report may be missing."""
        if not self._folder.is_finished:
            return False
        is_other = self._folder.plan() != self.plan
        if is_other or (self._folder.path / "report.html").exists():
            which = "with other settings" if is_other else "already"
            raise RunFolderError(f"{self._folder.path} holds a finished run {which}. {ELSEWHERE}")
        return True

    @cached_property
    def table(self) -> PartyTable:
        """Return this party's own table; one without rows, where its role holds none."""
        return self.home.table_for(self._method, self.plan)

    def sends(self) -> list[tuple[Declaration, str]]:
        """Return what this party will send and to whom, from the declarations alone."""
        found: list[tuple[Declaration, str]] = []
        method, plan, own = self._method, self.plan, self.home.name
        for peer in self._peers:
            ends = (plan.role_of(own), plan.role_of(peer))
            finding = (one for one in alignment.MESSAGES if alignment.sends(method, plan, one, own, peer))
            found += [(declaration_of(one), peer) for one in finding]
            found += [(one, peer) for one in method.declarations_in(plan) if (one.sender, one.receiver) == ends]
        return found

    def warnings(self) -> list[str]:
        """Return what this party's operator must know first: what others can make of it, and what is taken on trust."""
        sent = ((declaration, self.home.name, peer) for declaration, peer in self.sends())
        trusted = self.taken_on_trust()
        return [*self._method.warnings(self.plan), *warnings_of(sent), *([trusted] if trusted else [])]

    def taken_on_trust(self) -> str | None:
        """Return what this party must believe the lead about shared rows, where it is not the only other with rows."""
        method, plan, own = self._method, self.plan, self.home.name
        lead, parties = method.leader_of(plan), method.parties_with_rows(plan)
        others = [party for party in parties if party not in (own, lead)]
        is_by_pair = method.stage(plan.stage).rows == "pairwise"
        is_told = alignment.sends(method, plan, alignment.SharedRows, lead, own)
        if own not in parties or own == lead or not others or is_by_pair or not is_told:
            return None
        have = f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'}"
        return (
            f"'{lead}' will tell which rows all parties have. It can name only ids that it brings itself and that "
            f"'{own}' has too. That {have} them as well is its word alone."
        )

    def agree(self, consent: str | Callable[[Joining], str] | None) -> str | None:
        """Return who agreed to what will leave, and keep these words with the run; without any, nothing is sent."""
        # Every prediction sends other rows, so words given for one do not count for the next.
        path = None if self.plan.stage == "predict" else self._folder.path / "consent.json"
        if path is not None:
            # First, so that nobody is asked about a run that cannot be.
            for text in table_in_words(self.home.name, self.table, self.plan):
                self.watcher.told(text)
        kept = None if path is None else self._folder.consent
        self._consent, digest = None, self.plan.digest()
        if kept is not None and kept.digest == digest:
            self._consent = f"{kept.how}, before this run was interrupted"
        elif isinstance(consent, str) and consent:
            self._consent = consent
        elif self.home.policy.consent == "policy":
            self._consent = "given by policy.consent in party.toml"
        if self._consent is not None:
            for text in (f"Consent: {self._consent}.", *self.agreed_words(), *self.warnings()):
                self.watcher.told(text)
        elif callable(consent):
            self._consent = consent(self)
        if path is not None and self._consent is not None and (kept is None or kept.digest != digest):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(path, asdict(Consent(digest=digest, how=self._consent, when=now, account=_account())))
        return self._consent

    def agreed_words(self) -> list[str]:
        """Return what the parties agreed on in words: what the model is for, and how long the run may be kept."""
        words = {"Purpose": self.plan.purpose, "Retention": self.plan.retention}
        return [f"{name}: {text}" for name, text in words.items() if text is not None]

    def run(self, *, observer: Observer | None = None, compare: bool = False) -> Run:
        """Take part until the run is complete, then write the report."""
        return self.complete(self.take_part(observer=observer, compare=compare))

    def complete(self, own: PartyRun | None = None) -> Run:
        """Write the report; also of a run that ended before it could."""
        parties = {self.home.name: self._folder.load() if own is None else own}
        run = make_run(self.plan, parties, launch=LAUNCHED_APART, folder=self._folder.path)
        self._run_folder.finish(run)
        return run

    def take_part(self, *, observer: Observer | None = None, compare: bool = False) -> PartyRun:
        """Take part until all parties are through, also in an alignment only."""
        self.home.policy.check_consent(self.home.name, self._consent is not None)
        self._folder.begin(self.plan, self.table)
        runs = self._run_folder.path.parent
        model = earlier_folder(self._method, self.plan, runs, self.home.name, is_apart=True)
        party = self._participant(
            self._folder.path,
            self._run_folder.earlier_runs(),
            table=self.table,
            part=None if model is None else model.load().part,
            earlier=None if model is None else model.path,
        )
        status = StatusFile(self._folder.path, self.home.name, watcher=self.watcher, observer=observer)
        with self._endpoint() as endpoint, status.ended():
            ended = take_part_remotely(
                party, self.plan, endpoint, watcher=status, observer=status.observe, compare=compare
            )
            if ended is not None:
                status.complete(ended.ledger)
        if ended is not None:
            return ended
        # The result is kept, and the partners left before they could confirm it.
        with LedgerWriter(self._folder.ledger) as ledger:
            for peer in self._peers:
                ledger.mark("unconfirmed", peer=peer)
            ledger.mark("closed")
        return self._folder.load()

    def predict(self, source: str | None) -> pd.DataFrame | None:
        """Score new rows with the partners; only the party that may know them gets the scores.

        ``source`` is None where this party brings no rows.
        """
        self.home.policy.check_consent(self.home.name, self._consent is not None)
        trained = self._folder.load()
        check_format(self._folder.format, str(self._folder.path))
        if trained.part is None and self.home.name in self._method.parties_with_rows(self._folder.plan()):
            raise RunFolderError(f"{self._folder.path} holds no model. Train first.")
        table = None
        if source is not None and trained.part is not None:
            table = self.home.read_new_rows(source, trained.part, parties=self.plan.parties)
            self.notes = differences_of(trained.part, table)
            for note in self.notes:
                self.watcher.told(note)
        party = self._participant(
            next_prediction(self._folder.path), table=table, part=trained.part, refusals=trained.refusals
        )
        with self._endpoint() as endpoint:
            ended = take_part_remotely(party, self.plan, endpoint, watcher=self.watcher)
        return None if ended is None else ended.predictions

    def _participant(self, folder: Path, earlier_runs: int = 0, **brought: Any) -> Participant:
        home = self.home
        return Participant(
            home.name,
            home.policy,
            folder,
            earlier_runs,
            engine=home.engine,
            alignments=home.alignments,
            queries=home.queries,
            contributions=home.contributions,
            **brought,
        )

    def _endpoint(self) -> Endpoint:
        renewals = HomeRenewals(self.home.folder)
        return Endpoint(self._identity, self._partners, self.home.listen, renewals=renewals)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""  # one without a name, as in some containers


def take_part_remotely(
    party: Participant,
    plan: RunPlan,
    endpoint: Endpoint,
    *,
    watcher: Watcher,
    observer: Observer | None = None,
    compare: bool = False,
    comes_back: bool = True,
) -> PartyRun | None:
    """Take part in a run with partners in other processes, and come back to it as often as they do.

    With ``comes_back``, a partner that is lost, killed or interrupted is waited for, and all go on from the highest
    common checkpoint. Return None if this party kept its result in an earlier attempt and its partners have left.
    """
    peers = peers_of(method_named(plan.method), plan, party.name)
    while True:
        links = {peer: endpoint.link(peer) for peer in peers}
        patience = _LAST_WORDS_SECONDS
        try:
            if not _wait_for_all(party, links, endpoint, watcher):
                return None
            watcher.connected(links)
            run = take_part(party, plan, links, observer=observer, compare=compare)
            patience = float("inf")
            return run
        except (PeerLost, PeerFailed) as error:
            if not comes_back or (isinstance(error, PeerFailed) and not error.returns):
                raise
            watcher.interrupted(error)
        finally:
            for link in links.values():
                # After a failure only last words are left to say, and one of the peers is probably dead.
                link.close(patience)
        time.sleep(_PAUSE_SECONDS)


def _wait_for_all(party: Participant, links: Mapping[str, GrpcLink], endpoint: Endpoint, watcher: Watcher) -> bool:
    """Wait until every partner answers; False if they need not and do not."""
    keeps_result = party.folder is not None and PartyFolder(party.folder).keeps_result
    since = time.monotonic()
    while absent := [link for link in links.values() if not link.is_up]:
        for link in links.values():
            link.check_present()
        if keeps_result and time.monotonic() - since > _FAREWELL_SECONDS:
            return False
        watcher.connecting(links, endpoint.trouble)
        absent[0].wait_until_up(_STATUS_SECONDS)
    return True
