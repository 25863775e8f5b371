"""`colonnade predict`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.consent import ask_consent
from colonnade.cli.output import Waiting, examples, make_app, print_json, say, words_by_party
from colonnade.cli.run import YES, find_home, find_homes, resumable
from colonnade.engine import open_engine
from colonnade.errors import ConfigError, TableError
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder, load_run
from colonnade.launch.simulation import predict_in_threads
from colonnade.session import PROBABILITY, Party, write_whole
from colonnade.text import csv_cell

if TYPE_CHECKING:
    import pandas as pd

app = make_app("Score new rows with a finished run.")


@app.command(
    epilog=examples(
        "colonnade predict runs/churn --table new.csv      (in a party's home; the partners do the same)",
        "colonnade predict runs/churn                      (in a home that brings no rows, such as a source of ftl)",
        "colonnade predict runs/churn --table bank=new_bank.csv --table shop=new_shop.csv",
        "colonnade predict runs/churn --table bank=b.parquet --table shop=s.parquet --output scores.csv",
    )
)
def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run.")],
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A file with this party's columns of the new rows. For a run with all parties on this machine write "
            "PARTY=FILE, once for each party that brings rows: all that hold a table, or with ftl the targets.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="From which score on a row of two classes is predicted to be of the positive one, where this party "
            "gets scores. Default: the threshold of the run, which its report names."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .csv or .parquet file. Default: CSV on stdout.")
    ] = None,
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="The party's home; default: the folder above runs/. For a run with all parties on this machine write "
            "PARTY=FOLDER.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the first message leaves.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Score new rows with the partners; every message goes into a new ledger.

    Rows that all parties know are scored, and the label holder gets the scores. With fedcvt and mpdl its other rows are
    scored too, and a feature holder gets predictions for rows that only it knows: with mpdl scores, with fedcvt none.
    With ftl all rows of a target are scored, the source brings none, and the target gets predictions and no scores.
    """
    if output is not None:
        _check_output(output)
    run = load_run(folder).at_threshold(threshold)
    run.check_model()
    if len(run.tables) < len(run.plan.parties):
        scores, notes = _predict_with_partners(run, folder, table or [], home or [], yes, quiet)
    else:
        scores = _predict_here(run, folder, table or [], home or [])
        notes = scores.attrs.pop("notes")
    if scores is None:
        receivers = " and ".join(_scored_for(run))
        what = "scores" if run.method.predicting.rows != "own" else "predictions"
        unwritten = "" if output is None else f" Nothing was written to {output}."
        say(f"Done; the {what} went to {receivers}.{unwritten}")
        if json:
            print_json({"rows": 0, "scores": [], "notes": notes})
        return
    if output is not None:
        try:
            write_whole(output, _csv(scores).encode() if output.suffix == ".csv" else scores.to_parquet(index=False))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TableError(f"{output} cannot be written ({reason}). Choose another --output.") from None
        say(f"Written to {output}")
    if json:
        print_json({"rows": len(scores), "scores": scores.to_dict(orient="records"), "notes": notes})
    elif output is None:
        sys.stdout.write(_csv(scores))


def _csv(scores: pd.DataFrame) -> str:
    """Return scores as CSV in which nothing that a partner may have named is a formula; own ids stay as they are."""
    safe = scores.rename(columns=csv_cell)
    safe["prediction"] = [csv_cell(one) if isinstance(one, str) else one for one in scores["prediction"]]
    return safe.to_csv(index=False)


def _predict_here(run: Run, folder: Path, table: list[str], home: list[str]) -> pd.DataFrame:
    """Score with all parties in this process."""
    plan = run.method.in_stage(run.plan, "predict")
    parties, bringing = plan.parties, run.method.parties_with_rows(plan)
    files = words_by_party("--table", "file", table, parties)
    missing = [party for party in bringing if party not in files]
    if missing:
        raise ConfigError(f"No table was given for {', '.join(missing)}. Add --table {missing[0]}=FILE.")
    for party in files:
        if party not in bringing:
            raise ConfigError(_brings_nothing(run, party))
    homes = find_homes(parties, folder.resolve().parent.parent, home)
    tables = {party: homes[party].read_new_rows(files[party], run.parts[party], parties=parties) for party in bringing}
    with open_engine("auto") as engine:
        given = {party: Party(tables.get(party), policy=where.policy) for party, where in homes.items()}
        queries = {party: where.queries for party, where in homes.items()}
        scores = predict_in_threads(run, given, engine, queries)
    for party, notes in scores.attrs["notes"].items():
        for note in notes:
            say(f"{party}: {note}")
    if run.method.predicting.rows == "own":
        say(f"{len(scores)} rows scored: all that {' and '.join(bringing)} gave.")
        return scores
    if run.method.predicting.rows == "shared and rest":
        for party in bringing:
            say(_said_by_situation(run, scores, party, tables[party].rows))
        return scores
    asking = " and ".join(f"{party} gave {tables[party].rows}" for party in _scored_for(run))
    knowing = "that it and the other party" if run.method.predicting.rows == "pairwise" else "that all parties"
    say(f"{len(scores)} rows scored; {asking}, and only rows {knowing} know have a score.")
    return scores


def _predict_with_partners(
    run: Run, folder: Path, table: list[str], home: list[str], yes: bool, quiet: bool
) -> tuple[pd.DataFrame | None, dict[str, list[str]]]:
    """Score as one party, with partners who give the same command; return how its new rows differ, too."""
    from colonnade.launch.join import Joining, check_part

    where = find_home(home or [str(folder.resolve().parent.parent)], folder)
    plan = run.method.in_stage(run.plan, "predict")
    check_part(plan, where.name)
    is_bringing = where.name in run.method.parties_with_rows(plan)
    if table and not is_bringing:
        raise ConfigError(_brings_nothing(run, where.name))
    if is_bringing and len(table) != 1:
        others = "the partners give their own" if run.method.predicting.rows != "own" else "the source gives none"
        raise ConfigError(f"Give one --table with this party's columns of the new rows; {others}.")
    joining = Joining(plan, where, RunFolder(folder), Waiting(where, quiet))
    joining.agree(YES if yes else ask_consent)
    with resumable(folder):
        scores = joining.predict(table[0] if is_bringing else None)
    if scores is not None and run.method.predicting.rows == "shared and rest":
        say(_said_by_situation(run, scores, where.name))
    elif scores is not None:
        which = "those that all parties know" if run.method.predicting.rows != "own" else "all that were given"
        say(f"{len(scores)} rows scored: {which}.")
    return scores, {where.name: list(joining.notes)} if joining.notes else {}


def _said_by_situation(run: Run, scores: pd.DataFrame, party: str, given: int | None = None) -> str:
    """Say how many of a party's rows were scored, by who knows them; ``given`` is how many it gave, where known."""
    is_only = len(run.method.parties_with_rows(run.plan)) == 2
    whose = f"that only {party} knows" if is_only else "that not all parties know"
    shared = int((scores["known to"] == "all parties").sum())
    is_own = scores["known to"].isin([f"{party} only", f"{party}, not all parties"])
    own = int(is_own.sum())
    gave = "" if given is None else f" gave {given} rows"
    left = 0 if given is None else given - shared - own
    if party in _scored_for(run):
        counted = f"{shared} that all parties know and {own} {whose}"
        if left:
            counted += f"; the other {left} have no score, as this run's model scores shared rows only"
        return f"{party}{gave}: {shared + own} scored, {counted}."
    # Tables of several parties are put together, so that a column of scores may be there and empty.
    are_scored = bool(scores[is_own].filter(regex=f"^{PROBABILITY}").notna().any(axis=None))
    got = f"{own} {whose} got {'scores' if are_scored else 'predictions, without scores'}"
    if left and not own:
        agreed = " (partner_answers = 'none')" if run.plan.config.get("partner_answers") == "none" else ""
        got = f"{left} {whose} got no prediction{agreed}"
    return f"{party}{gave}: {got}. Scores of rows that all parties know went to {' and '.join(_scored_for(run))}."


def _scored_for(run: Run) -> tuple[str, ...]:
    return run.method.scored_for(run.method.in_stage(run.plan, "predict"))


def _brings_nothing(run: Run, party: str) -> str:
    bringing = run.method.parties_with_rows(run.method.in_stage(run.plan, "predict"))
    return (
        f"'{party}' is the {run.plan.role_of(party)} of this run and brings no rows to be scored: "
        f"{' and '.join(bringing)} {'do' if len(bringing) > 1 else 'does'}. Leave out its --table."
    )


def _check_output(output: Path) -> None:
    """Refuse a place for the scores before anything is computed or crosses."""
    if output.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"'{output}' is neither .csv nor .parquet. Did you mean '{output.with_suffix('.csv')}'?")
    if output.is_dir():
        raise ConfigError(f"{output} cannot be written: it is a folder. Choose another --output.")
    if not output.parent.is_dir():
        make = shlex.join(["mkdir", "-p", str(output.parent)])
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}. Make it with `{make}`.")
