"""A run folder: that of one party, or several parties' side by side where all of them are on one machine.

docs/ref-run-folder.md shows what lies in it. ``simulation.json`` is written last: it marks a finished run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from colonnade.errors import ConfigError, LedgerBroken, PolicyRefused, RunFolderError, UsageError
from colonnade.launch.lock import LOCK_FILE, alone_in
from colonnade.launch.party_folder import ELSEWHERE, PARTY_FILES, PartyFolder, unchanged
from colonnade.launch.run import Run, make_run
from colonnade.ledger import Ledger
from colonnade.methods import method_named
from colonnade.metrics import Evaluation
from colonnade.session import ALIGN, RunPlan, read_json, write_json, write_whole

__all__ = ["LAUNCHED_APART", "RunFolder", "alignment_plan", "held_alignment", "load_run"]

_SHARED_FILES = ("run.toml", "simulation.json", "report.html", "predictions")
LAUNCHED_APART = "one process for each party, over mutual TLS"
_ASIDE = ".earlier"
_HALFWAY = ".earlier.part"
_HIDDEN = (LOCK_FILE, _ASIDE, _HALFWAY)


class RunFolder:
    """Where a run keeps its things."""

    def __init__(self, path: Path, agreed: bytes | None = None) -> None:
        """Name a folder; ``agreed`` is the run.toml to keep there."""
        self.path, self._agreed = path, agreed
        self.lock = -1
        """The file that keeps others out while the folder is held."""

    def party(self, name: str) -> PartyFolder:
        """Return a party's own run folder, where several lie side by side."""
        if name in _SHARED_FILES:
            raise ConfigError(f"A run folder has a '{name}' of its own, so no party can be called that. Rename it.")
        return PartyFolder(self.path / name)

    @contextmanager
    def held(self, *, overwrite: bool = False) -> Iterator[Self]:
        """Keep every other process out, and refuse a place that cannot take a run, before any work is done.

        With ``overwrite`` an earlier run is put aside while the new one is made, and deleted when it is. A new run that
        is refused for a setting, a table or a policy, or cannot be written, before its first checkpoint, leaves no
        trace, and the earlier one comes back. Only what belongs to a run is ever moved or deleted.
        """
        with alone_in(self.path) as self.lock:
            self._bring_back()
            self._check_place(overwrite)
            is_new = overwrite or not self._parts()
            if overwrite:
                self._put_aside()
            try:
                yield self
            except (UsageError, PolicyRefused, OSError):
                if is_new and not self._has_checkpoints():
                    self._delete_parts()
                raise
            finally:
                # What was interrupted before it had anything to show must not cost the earlier run.
                self._bring_back()

    def finish(self, run: Run) -> None:
        """Write the report, and the facts of a run whose parties are all here. What says "finished" comes last."""
        if self._agreed is not None:
            write_whole(self.path / "run.toml", self._agreed)
        run.report()
        if PartyFolder(self.path).holds_run:
            return
        about = {
            "launch": run.launch,
            "started": run.started,
            "seconds": run.seconds,
            "parties": list(run.plan.parties),
            # A resumed ledger may hold more than one closing; this says which was the last.
            "heads": {party: ledger.head for party, ledger in run.ledgers.items()},
            # They need all parties' columns, so no party's own folder may hold them.
            "evaluations": {name: one.to_json() for name, one in run.central.items()},
        }
        write_json(self.path / "simulation.json", about)

    def earlier_runs(self, party: str | None = None) -> int:
        """Count the other runs in the same place, for the policy's limit; of one party where several lie together."""
        if not self.path.parent.is_dir():
            return 0
        others = [run for run in self.path.parent.iterdir() if run != self.path]
        return sum(((run / party if party else run) / "ledger.jsonl").exists() for run in others)

    def load(self) -> Run:
        """Read a finished run back."""
        self._check_exists()
        own, about_path = PartyFolder(self.path), self.path / "simulation.json"
        if own.holds_run or not about_path.exists():
            one = own.load()  # or it says that there is no finished run
            return make_run(own.plan(), {one.party: one}, launch=LAUNCHED_APART, folder=self.path, format=own.format)
        with unchanged(self.path):
            return self._load(read_json(about_path))

    def _load(self, about: dict[str, Any]) -> Run:
        folders = {party: self.party(party) for party in about["parties"]}
        plan = next(iter(folders.values())).plan()
        if tuple(folders) != plan.parties:
            raise ValueError("parties")
        runs = {party: folder.load() for party, folder in folders.items()}
        if any(one.party != party for party, one in runs.items()):
            raise ValueError("party")
        return make_run(
            plan,
            runs,
            launch=about["launch"],
            started=about["started"],
            seconds=about["seconds"],
            central={name: Evaluation.from_json(one) for name, one in about["evaluations"].items()},
            folder=self.path,
            format=min(folder.format for folder in folders.values()),
        )

    def ledgers(self) -> dict[str, Ledger]:
        """Return the ledgers in this folder, finished or not; one that should be here and is not, is a broken one."""
        self._check_exists()
        own = PartyFolder(self.path)
        if own.ledger.is_file():
            return {self.path.name: Ledger.read(own.ledger)}
        # With simulation.json lost, a party's plan still says who else was here.
        expected = {folder.path.name for folder in self._party_folders()}
        expected |= {party for folder in self._party_folders() for party in folder.plan().parties}
        expected |= {path.parent.name for path in self.path.glob("*/ledger.jsonl")}
        heads = self._heads()
        found = {}
        for party in sorted(expected | heads.keys()):
            path = self.path / party / "ledger.jsonl"
            if not path.exists():
                raise LedgerBroken(
                    f"The ledger of '{party}' is missing from {path.parent}. Restore it, or do not rely on this run."
                )
            found[party] = Ledger.read(path)
            if party in heads:
                found[party].verify()
            if party in heads and found[party].head != heads[party]:
                raise LedgerBroken(
                    f"The ledger of '{party}' in {self.path} is not the one the run ended with. It was cut off at an "
                    "earlier end or replaced; do not rely on this run's report."
                )
        if not found:
            raise RunFolderError(f"{self.path} holds no ledgers. Give the folder of one run, such as runs/churn.")
        return found

    def _heads(self) -> dict[str, str]:
        path = self.path / "simulation.json"
        if not path.exists():
            return {}
        try:
            return {str(party): str(head) for party, head in read_json(path)["heads"].items()}
        except (KeyError, TypeError, AttributeError):
            raise LedgerBroken(f"{path} was changed, so it does not say how the ledgers ended. Restore it.") from None

    def _check_exists(self) -> None:
        if self.path.is_dir():
            return
        if self.path.exists():
            raise RunFolderError(f"{self.path} is a file. Give the folder of a run, such as runs/churn.")
        above = self.path.parent
        names = [one.name for one in above.iterdir() if RunFolder(one)._parts()] if above.is_dir() else []
        near = get_close_matches(self.path.name, names, n=1)
        hint = f"Did you mean '{above / near[0]}'?" if near else "Runs lie in 'runs/' beside run.toml by default."
        raise RunFolderError(f"There is no run folder {self.path}. {hint}")

    def _check_place(self, overwrite: bool) -> None:
        if (
            any(one.name not in _HIDDEN and not _is_barely_begun(one) for one in self.path.iterdir())
            and not self._parts()
        ):
            raise RunFolderError(
                f"{self.path} holds other things and no run, so nothing will be written or deleted there. "
                "Choose another --folder."
            )
        # The last file to be written; a closed ledger alone is not enough, the comparison comes after it.
        if not overwrite and (self.path / "simulation.json").exists():
            raise RunFolderError(f"{self.path} holds a finished run already. {ELSEWHERE}")

    def _party_folders(self) -> list[PartyFolder]:
        # What one party has put aside looks like the folder of a party of that name.
        children = sorted(one for one in self.path.iterdir() if one.name not in _HIDDEN) if self.path.is_dir() else []
        return [folder for folder in map(PartyFolder, children) if folder.holds_run]

    def _parts(self) -> list[Path]:
        """Return what belongs to a run here."""
        if PartyFolder(self.path).holds_run:
            return self._existing(PARTY_FILES)
        folders = self._party_folders()
        return [*self._existing(_SHARED_FILES), *(folder.path for folder in folders)] if folders else []

    def _existing(self, names: Iterable[str]) -> list[Path]:
        return [self.path / name for name in names if (self.path / name).exists()]

    def _has_checkpoints(self) -> bool:
        return any((one / "checkpoints").exists() for one in (self.path, *(f.path for f in self._party_folders())))

    def _put_aside(self) -> None:
        halfway = self.path / _HALFWAY
        for part in self._parts():
            halfway.mkdir(exist_ok=True)
            part.rename(halfway / part.name)
        if halfway.exists():
            halfway.rename(self.path / _ASIDE)

    def _bring_back(self) -> None:
        """Undo `_put_aside`, also for a process that was killed halfway or before it had anything better to show."""
        halfway, aside = self.path / _HALFWAY, self.path / _ASIDE
        if aside.is_dir() and not self._parts():
            aside.rename(halfway)
        for part in sorted(halfway.iterdir()) if halfway.is_dir() else ():
            place = self.path / part.name
            if place.is_dir() and not place.is_symlink() and not PartyFolder(place).holds_run:
                # A party's folder that a killed process had only begun to make, so that it does not count as one yet.
                shutil.rmtree(place)
            part.rename(place)
        shutil.rmtree(halfway, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)

    def _delete_parts(self) -> None:
        for part in self._parts():
            shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()


def _is_barely_begun(path: Path) -> bool:
    """Tell whether this is all that a party wrote before it was killed: the first file, or a folder with it alone."""
    first = {"consent.json", "consent.json.part", "table.json", "table.json.part", "plan.json.part"}
    return path.name in first or (path.is_dir() and {one.name for one in path.iterdir()} <= first)


def load_run(folder: str | Path) -> Run:
    """Return the run a folder holds; raise RunFolderError if it holds no finished one."""
    return RunFolder(Path(folder)).load()


# An alignment on its own: to see what parties share before there is a run, or to have it ready for one


def alignment_plan(plan: RunPlan, mode: str | None = None) -> RunPlan:
    """Return the plan of aligning only, in the run's own mode or another one, between the parties with rows."""
    with_rows = method_named(plan.method).parties_with_rows(plan)
    roles = {role: parties for role, parties in plan.roles.items() if set(parties) <= set(with_rows)}
    rule = plan.alignment if mode is None else replace(plan.alignment, mode=mode)  # type: ignore[arg-type]
    return replace(plan, stage=ALIGN, alignment=rule, roles=roles)


@contextmanager
def held_alignment(base: Path, name: str, agreed: bytes) -> Iterator[RunFolder]:
    """Hold a fresh folder for one alignment; if it ends before a ledger was begun, it leaves no trace."""
    runs = base / "alignments" / "runs"
    folder = RunFolder(_fresh(runs, name), agreed)
    with alone_in(folder.path) as folder.lock:
        try:
            write_whole(folder.path / "run.toml", agreed)
            yield folder
        finally:
            if not any(folder.path.rglob("ledger.jsonl")):
                for child in folder.path.iterdir():
                    if child.name != ".lock":
                        shutil.rmtree(child) if child.is_dir() else child.unlink()


def _fresh(runs: Path, name: str) -> Path:
    # The alignments folder holds secrets, so it is for its owner only.
    runs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs.mkdir(mode=0o700, exist_ok=True)
    taken = [path.name.removeprefix(f"{name}-") for path in runs.glob(f"{name}-*")]
    return runs / f"{name}-{max((int(one) for one in taken if one.isdigit()), default=0) + 1:04d}"
