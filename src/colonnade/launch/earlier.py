"""The model of an earlier stage that another stage goes on from."""

from __future__ import annotations

from pathlib import Path

from colonnade.errors import ConfigError, RunFolderError
from colonnade.launch.party_folder import PartyFolder
from colonnade.session import Method, RunPlan

__all__ = ["check_earlier", "earlier_folder", "earlier_folders"]


def check_earlier(method: Method, plan: RunPlan, earlier: RunPlan | None) -> None:
    """Refuse to go on from a run that does not fit, or from none where one is needed."""
    wanted = method.stage(plan.stage).after
    if not wanted:
        if earlier is not None:
            raise ConfigError(f"The stage {plan.stage} begins from nothing; it does not go on from another run.")
        return
    stages = " or ".join(wanted)
    if earlier is None:
        raise ConfigError(f"The stage {plan.stage} goes on from a run of the stage {stages}. Pass it as after = ….")
    if earlier.method != plan.method or earlier.stage not in wanted:
        raise ConfigError(
            f"The stage {plan.stage} of {plan.method} goes on from its stage {stages}, not from the stage "
            f"{earlier.stage} of {earlier.method}."
        )


def earlier_folder(method: Method, plan: RunPlan, runs: Path, party: str, *, is_apart: bool) -> PartyFolder | None:
    """Return where a party keeps its part of the model to go on from, in a folder of runs.

    ``is_apart`` where the folder is this party's own, and not one that several parties share.
    """
    if plan.after is None or _was_absent(method, plan, party):
        return None
    path = runs / plan.after
    folder = PartyFolder(path if is_apart else path / party)
    if not folder.keeps_result:
        stages = " or ".join(method.stage(plan.stage).after)
        raise RunFolderError(
            f"The stage {plan.stage} goes on from a finished run of the stage {stages}, and there is none in "
            f"{folder.path}. Run that first, with the same run.toml, or name the run in [run] after = …."
        )
    check_earlier(method, plan, folder.plan())
    return folder


def _was_absent(method: Method, plan: RunPlan, party: str) -> bool:
    """Tell whether a party takes no part in any stage that this one can go on from, so that it has nothing to bring."""
    role = plan.role_of(party)
    return all(role not in method.stage(stage).roles for stage in method.stage(plan.stage).after)


def earlier_folders(method: Method, plan: RunPlan, folder: Path) -> dict[str, PartyFolder]:
    """Return where all parties keep their parts of the model to go on from, where they lie side by side."""
    found = {party: earlier_folder(method, plan, folder.parent, party, is_apart=False) for party in plan.parties}
    return {party: one for party, one in found.items() if one is not None}
