"""Score new rows with a trained run, all parties in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.data import Kind, PartyTable, TableEncoder
from colonnade.engine import INLINE, Engine
from colonnade.errors import ConfigError, RunFolderError
from colonnade.launch.party_folder import PartyFolder, next_prediction
from colonnade.launch.policies import check_message_names
from colonnade.launch.settings import config_from_json
from colonnade.launch.take_part import Seat, Taken
from colonnade.launch.threads import play_in_threads
from colonnade.session import ModelPart, Party

if TYPE_CHECKING:
    import pandas as pd

    from colonnade.launch.run import Run

__all__ = ["can_score", "check_model", "column_types", "predict_in_threads", "scored"]


def predict_in_threads(
    run: Run,
    parties: Mapping[str, Party],
    engine: Engine = INLINE,
    queries: Mapping[str, Path] | None = None,
) -> pd.DataFrame:
    """Score new rows with a trained run, as the party that may know the scores gets them.

    ``queries`` are the files in which parties count what they score, where they have homes.
    """
    check_model(run)
    plan = run.method.in_stage(run.plan, "predict")
    config = config_from_json(run.method, plan.config)
    bringing = run.method.parties_with_rows(plan)
    tables = {name: party.table for name, party in parties.items() if party.table is not None}
    missing = sorted((set(bringing) ^ set(tables)) | (set(parties) - set(plan.parties)))
    if missing:
        raise ConfigError(f"Prediction needs one table each of {', '.join(bringing)}; check {', '.join(missing)}.")
    for party in parties.values():
        check_message_names(party.policy)
    folder = None if run.folder is None else next_prediction(run.folder)
    kept = {} if run.folder is None else {party: PartyFolder(run.folder / party).queries for party in plan.parties}
    counted = {**kept, **(queries or {})}
    seats = {
        name: Seat(
            name,
            tables[name] if name in tables else PartyTable.nothing(name),
            parties.get(name, Party()).policy,
            None if folder is None else PartyFolder(folder / name),
            module=parties.get(name, Party()).module,
            part=run.parts.get(name),
            refusals=run.refusals.get(name, {}),
            engine=engine,
            queries=counted.get(name),
        )
        for name in plan.parties
    }
    taken = play_in_threads(run.method, plan, config, seats)
    return _joined({party: frame for party, one in taken.items() if (frame := scored(one)) is not None})


def can_score(run: Run) -> bool:
    """Tell whether a run made a model to score with; a party without rows may have no part of it."""
    lack_model = set(run.method.parties_with_rows(run.plan)) & set(run.tables) and not run.parts
    return not lack_model and run.plan.stage in run.method.scored_after


def check_model(run: Run) -> None:
    """Refuse to score with a run that made no model."""
    if not can_score(run):
        where = "This run" if run.folder is None else str(run.folder)
        raise RunFolderError(
            f"{where} holds the stage {run.plan.stage}, which makes no model to score with. Train first, with the same "
            f"run.toml and the stage {' or '.join(run.method.scored_after)}, and score with the run that this gives."
        )


def _joined(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put several parties' predictions below each other; the first column then says whose they are."""
    import pandas as pd

    if len(frames) == 1:
        return next(iter(frames.values()))
    named = []
    for party, frame in frames.items():
        # A party's own id column may have the same name.
        own = frame.rename(columns={"party": f"{party}: party"})
        own.insert(0, "party", party)
        named.append(own)
    return pd.concat(named, ignore_index=True)


def column_types(part: ModelPart) -> dict[str, Kind]:
    """Return the types of the columns a model part was trained with: a few new rows may look different from many."""
    if "types" in part.document:
        return dict(part.document["types"])
    encoder = part.document.get("table_encoder")
    return TableEncoder.from_json(encoder).types if encoder else {}


def scored(taken: Taken) -> pd.DataFrame | None:
    """Return ids, scores and predictions as a table, if this party is the one that gets them."""
    import pandas as pd

    if taken.scores is None:
        return None
    # In the order of the party's own table, as people expect; the agreed order looks random to them.
    positions = taken.holding.aligned.positions if taken.scores.positions is None else taken.scores.positions
    order = np.argsort(positions)
    table = taken.holding.table.take(positions[order])
    scores = replace(taken.scores, rows=taken.scores.rows[order], values=taken.scores.values[order])
    columns: dict[str, Any] = dict(table.id_parts)
    if scores.known_to:
        columns["known to"] = np.array(scores.known_to, dtype=object)[order]
    classes = pd.Series(list(scores.classes))
    if scores.task == "regression":
        columns["prediction"] = scores.values
    elif scores.is_decided:
        columns["prediction"] = classes[scores.values].to_numpy()
    elif scores.task == "binary":
        columns["score"] = scores.values
        columns["prediction"] = classes[(scores.values >= 0.5).astype(int)].to_numpy()
    else:
        columns |= {f"score of {name}": scores.values[:, place] for place, name in enumerate(scores.classes)}
        columns["prediction"] = classes[scores.values.argmax(axis=1)].to_numpy()
    # In one go: pandas warns of frames that grew by a hundred columns one by one.
    return pd.DataFrame(columns)
