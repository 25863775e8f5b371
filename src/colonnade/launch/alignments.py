"""An alignment on its own: to see what parties share before there is a run, or to have it ready for one.

::

    bank/alignments/
      history.jsonl              every alignment begun, with whom, over how many ids; see `alignment.history`
      ….rows                     results: this party's own row numbers, used again by runs with the same ids
      …/unfinished-shop/         where an alignment that was cut short goes on; holds a secret, deleted at the end
      runs/churn-0001/           ledger, plan and outcome of one `colonnade align`

With all parties on one machine, ``alignments/runs`` lies beside run.toml, and has a folder for each party.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from colonnade.launch.lock import alone_in
from colonnade.launch.run_folder import RunFolder
from colonnade.session import ALIGN, RunPlan, write_whole

__all__ = ["alignment_plan", "held_alignment"]


def alignment_plan(plan: RunPlan, mode: str | None = None) -> RunPlan:
    """Return the plan of aligning only, in the run's own mode or another one, between the parties with rows."""
    from colonnade.methods import method_named  # not above, as it takes seconds to load

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
