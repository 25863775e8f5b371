"""One party in its own building: its home, its run folder and its door, put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from colonnade import alignment
from colonnade.data import PartyTable
from colonnade.errors import RunFolderError
from colonnade.launch.earlier import earlier_folder
from colonnade.launch.home import PartyHome
from colonnade.launch.identity import HomeRenewals, activate_next_identity, load_identity, load_partners
from colonnade.launch.join import finish_without_partners, join
from colonnade.launch.party_folder import PartyEnd, PartyFolder, next_prediction
from colonnade.launch.predict import column_types, scored
from colonnade.launch.run import Run
from colonnade.launch.run_folder import LAUNCHED_APART, RunFolder
from colonnade.launch.settings import config_from_json
from colonnade.launch.status import StatusFile
from colonnade.launch.take_part import Seat, alignment_messages, peers_of
from colonnade.launch.watch import Watcher
from colonnade.messages import ANYONE, Declaration, declaration_of, warnings_of
from colonnade.methods import method_named
from colonnade.session import Observer, RunPlan, read_json, write_json
from colonnade.transport.grpc import Endpoint

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Joining"]


class Joining:
    """One party's way through a run with partners elsewhere."""

    def __init__(self, plan: RunPlan, home: PartyHome, folder: RunFolder) -> None:
        """Check what can be checked before anything is opened: roles, settings, key, partners."""
        self.plan, self.home = plan, home
        self._method = method_named(plan.method)
        self._method.check_roles(plan)
        self._config = config_from_json(self._method, plan.config)
        self._run_folder, self._folder = folder, PartyFolder(folder.path)
        self._peers = peers_of(self._method, plan, home.name)
        activate_next_identity(home.folder)
        self._identity = load_identity(home.folder, home.name)
        self._partners = load_partners(home, self._peers)
        self._table: PartyTable | None = None
        self._has_consent = False

    @property
    def is_finished(self) -> bool:
        """Tell whether only the report may be missing."""
        if not self._folder.is_finished:
            return False
        is_other = self._folder.plan() != self.plan
        if is_other or (self._folder.path / "report.html").exists():
            raise RunFolderError(
                f"{self._folder.path} holds a finished run {'with other settings' if is_other else 'already'}. Choose "
                "another name in run.toml, another --folder, or --overwrite the earlier run."
            )
        return True

    def read_table(self) -> PartyTable:
        """Read this party's own table; one without rows, where its role holds none."""
        self._table = self.home.table_for(self._method, self.plan)
        return self._table

    def sends(self) -> list[tuple[Declaration, str]]:
        """Return what this party will send and to whom, from the declarations alone."""
        found = []
        own, lead = self.plan.role_of(self.home.name), self._method.lead_in(self.plan)
        finding = alignment_messages(self._method, self.plan)
        for peer in self._peers:
            role = self.plan.role_of(peer)
            is_aligned = self._method.are_aligned(self.plan, self.home.name, peer)
            for declaration in (*map(declaration_of, finding), *self._method.declarations_in(self.plan)):
                if declaration.sender == ANYONE:
                    fits = is_aligned and alignment.sends(declaration.name, self.plan.alignment, is_lead=own == lead)
                else:
                    fits = (declaration.sender, declaration.receiver) == (own, role)
                if fits:
                    found.append((declaration, peer))
        return found

    def warnings(self) -> list[str]:
        """Return what this party's operator must know first: what others can make of it, and what is taken on trust."""
        sent = ((declaration, self.home.name, peer) for declaration, peer in self.sends())
        trusted = self.taken_on_trust()
        return [*self._method.cautions(self.plan), *warnings_of(sent), *([trusted] if trusted else [])]

    def taken_on_trust(self) -> str | None:
        """Return what this party must believe the lead about shared rows, where it is not the only other with rows."""
        method, plan, own = self._method, self.plan, self.home.name
        lead, parties = method.leader_of(plan), method.parties_with_rows(plan)
        others = [party for party in parties if party not in (own, lead)]
        is_by_pair = method.stage(plan.stage).rows == "pairwise"
        is_told = alignment_messages(method, plan) and alignment.sends("SharedRows", plan.alignment, is_lead=True)
        if own not in parties or own == lead or not others or is_by_pair or not is_told:
            return None
        have = f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'}"
        return (
            f"'{lead}' will tell which rows all parties have. It can name only ids that it brings itself and that "
            f"'{own}' has too. That {have} them as well is its word alone."
        )

    def consent(self, yes: bool) -> str | None:
        """Return why no one need be asked: agreed before, by option or by policy; None if someone must be."""
        path = self._folder.path / "consent.json"
        # Every prediction sends other rows, so a word given for one does not count for the next.
        if self.plan.stage != "predict" and path.exists() and read_json(path).get("digest") == self.plan.digest():
            self._has_consent = True
            return f"{read_json(path).get('how')}, before this run was interrupted"
        if yes:
            self.note_consent("given by --yes")
            return "given by --yes"
        if self.home.policy.consent == "policy":
            self.note_consent("given by policy.consent in party.toml")
            return "given by policy.consent in party.toml"
        return None

    def note_consent(self, how: str) -> None:
        """Keep the operator's word with the run."""
        self._has_consent = True
        if self.plan.stage == "predict":
            return
        write_json(self._folder.path / "consent.json", {"digest": self.plan.digest(), "how": how})

    def run(self, *, observer: Observer | None, watcher: Watcher, compare: bool) -> Run:
        """Take part until the run is complete, then write the report."""
        return self._completed(self._take_part(observer, watcher, compare=compare))

    def align(self, *, observer: Observer | None, watcher: Watcher) -> PartyEnd:
        """Take part in an alignment only, of a plan of the stage ``align``."""
        return self._take_part(observer, watcher)

    def _take_part(self, observer: Observer | None, watcher: Watcher, *, compare: bool = False) -> PartyEnd:
        self.home.policy.check_consent(self.home.name, self._has_consent)
        table = self._table or self.read_table()
        self._folder.begin(self.plan, table)
        earlier = self._run_folder.earlier_runs()
        model = earlier_folder(self._method, self.plan, self._run_folder.path.parent, self.home.name, is_apart=True)
        part = None if model is None else model.load().record.part
        seat = self._seat(table, self._folder, earlier_runs=earlier, part=part, earlier=model)
        status = StatusFile(self._folder.path, self.home.name, watcher=watcher, observer=observer)
        with self._open_door() as endpoint, _ended(status):
            taken = join(
                seat,
                self._method,
                self.plan,
                self._config,
                endpoint,
                watcher=status,
                observer=status.observe,
                compare=compare,
            )
            return finish_without_partners(self._folder, self._peers) if taken is None else taken.end

    def _seat(self, table: PartyTable, folder: PartyFolder, **more: Any) -> Seat:
        return Seat(
            self.home.name,
            table,
            self.home.policy,
            folder,
            engine=self.home.engine,
            alignments=self.home.alignments,
            history=self.home.history,
            queries=self.home.queries,
            contributions=self.home.contributions,
            **more,
        )

    def complete(self) -> Run:
        """Write the report of a run that ended before it could."""
        return self._completed(self._folder.load())

    def predict(self, source: str | None, *, watcher: Watcher) -> pd.DataFrame | None:
        """Score new rows with the partners; only the party that may know them gets the scores.

        ``source`` is None where this party brings no rows.
        """
        self.home.policy.check_consent(self.home.name, self._has_consent)
        record = self._folder.load().record
        part = record.part
        if part is None and self.home.name in self._method.parties_with_rows(self._folder.plan()):
            raise RunFolderError(f"{self._folder.path} holds no model. Train first.")
        if source is None or part is None:
            table = PartyTable.nothing(self.home.name)
        else:
            table = self.home.read_new_rows(source, column_types(part), parties=self.plan.parties)
        folder = PartyFolder(next_prediction(self._folder.path))
        seat = self._seat(table, folder, part=part, refusals=record.refusals)
        with self._open_door() as endpoint:
            taken = join(seat, self._method, self.plan, self._config, endpoint, watcher=watcher)
        return None if taken is None else scored(taken)

    def _completed(self, end: PartyEnd) -> Run:
        run = Run.of(self.plan, {self.home.name: end}, launch=LAUNCHED_APART, folder=self._folder.path)
        self._run_folder.finish_alone(run)
        return run

    @contextmanager
    def _open_door(self) -> Iterator[Endpoint]:
        renewals = HomeRenewals(self.home.folder)
        endpoint = Endpoint(self._identity, self._partners, self.home.listen, renewals=renewals)
        endpoint.open()
        try:
            yield endpoint
        finally:
            endpoint.close()


@contextmanager
def _ended(status: StatusFile) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        status.end("interrupted")
        raise
    except Exception:
        status.end("failed")
        raise
    status.end("finished")
