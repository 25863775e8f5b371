"""The report page, section by section in the order it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from colonnade import __version__
from colonnade.reports import figures
from colonnade.reports.agreement import agreement
from colonnade.reports.crossed import crossed
from colonnade.reports.decision import decision, is_choice
from colonnade.reports.markup import Html, joined, tag
from colonnade.reports.quality import quality
from colonnade.reports.record import RunRecord
from colonnade.reports.tables import table as _table
from colonnade.reports.tables import terms as _terms
from colonnade.reports.wording import (
    alone_name,
    data_parties,
    duration_text,
    headline_of,
    listed,
    metric_title,
    moment_text,
    plural,
    setting_text,
)
from colonnade.session import Finding, write_whole

__all__ = ["render", "write"]

# The page may use its own inline style and images, and nothing else: a browser will refuse any request it could make.
_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
MOST_OPEN_COLUMNS = 8


def write(record: RunRecord, path: str | Path) -> Path:
    """Write the page of a run to a file that only its owner can read, and return where it is."""
    place = Path(path)
    # A folder that is not there is a slip, and is not made.
    write_whole(place.parent.resolve(strict=True) / place.name, render(record).encode())
    return place


def render(record: RunRecord, today: date | None = None) -> str:
    """Return the page of a run: the same text for the same record and day, with no reference to anything outside it."""
    today = today or datetime.now(UTC).date()
    done = "trained" if record.makes_model else "done"
    sections = [
        ("agreement", "Agreement", agreement(record, today)),
        ("trained", f"What was {done}, and by whom", _trained(record)),
        ("data", "Data at each party", _data(record)),
        ("quality", "How good it is", quality(record)),
        *([("findings", "What else was found", found)] if (found := list(_findings(record))) else []),
        *([("coefficients", "Coefficients", weights)] if (weights := list(_coefficients(record))) else []),
        ("learning", "Learning curves", _learning(record)),
        ("crossed", "What crossed", crossed(record)),
        ("settings", "Settings and digest", _settings(record)),
        ("check", "How to check this report", _check(record)),
    ]
    links = (tag("li", tag("a", title, href=f"#{key}")) for key, title, _ in sections)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_SECURITY_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{record.title} · colonnade"),
        tag("style", Html(files("colonnade.reports").joinpath("report.css").read_text(encoding="utf-8"))),
    )
    body = tag(
        "body",
        decision(record, today),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", title, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title")
                for key, title, content in sections
            ),
        ),
        tag(
            "footer",
            f"Made by colonnade {__version__} for run {record.plan.name}. This page loads nothing from a network.",
        ),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _trained(record: RunRecord) -> Iterable[Html]:
    method = record.method
    yield tag("p", tag("strong", method.title), " (", tag("code", method.name), ")", "." if method.title else None)
    if method.citation:
        yield tag("p", method.citation, class_="soft")
    if record.brought:
        does = {role.name: role.holds for role in method.roles}
        rows = [[party, about["role"], does.get(about["role"], "")] for party, about in record.brought.items()]
        yield _table("The parties and their roles in this method", ["Party", "Role", "What the role does"], rows)
    others = [f"{party} ran {version}" for party, version in record.other_versions.items()]
    facts = [
        ("Label", record.label.get("sentence", "")),
        ("Stage", "" if record.plan.stage == "train" else record.plan.stage),
        ("Launch", record.launch),
        ("Made on", moment_text(record.started)),
        ("Took", duration_text(record.seconds)),
        ("Seed", str(record.plan.seed)),
        ("Version", ", ".join([f"colonnade {method.version}", *others])),
    ]
    yield _terms((title, value) for title, value in facts if value)


def _data(record: RunRecord) -> Iterable[Html]:
    if record.alignment:
        yield tag("p", record.alignment)
    if record.brought:
        head = ["Party", "Rows", "Shared rows", "Columns", "Width after encoding", "Label"]
        rows = [_brought(party, about) for party, about in record.brought.items()]
        yield _table("What each party brought; only counts are shown, never values", head, rows, numeric={1, 2, 3, 4})
    if any(record.rows.values()):
        parts = [f"{_count(count)} for {_part(part)}" for part, count in record.rows.items()]
        yield tag("p", f"The shared rows were split: {listed(parts)}.")
    for party, about in record.brought.items():
        if about["columns"]:
            yield _columns(party, about["columns"])


def _brought(party: str, about: Mapping[str, Any]) -> list[str]:
    if not about["has_table"]:
        return [party, "holds no table", *[_count(None)] * 4]
    if about["is_elsewhere"]:
        return [party, "not known here", *[""] * 4]
    counts = (about["rows"], about["shared_rows"], _used(about["columns"]), about["encoded_width"])
    return [party, *map(_count, counts), "none" if about["label"] is None else about["label"]]


def _part(name: str) -> str:
    return {"train": "training", "test": "the held-out test"}.get(name, name)


def _used(columns: Sequence[Mapping[str, Any]]) -> int:
    return sum(not one.get("left_out") for one in columns)


def _columns(party: str, columns: Sequence[Mapping[str, Any]]) -> Html:
    head = ["Column", "Kind", "Missing", "Distinct", "Encoded as", "Numbers"]
    table = _table(f"Columns of {party}", head, [_column(one) for one in columns], numeric={2, 3, 5})
    left_out, flagged = len(columns) - _used(columns), sum(_looks_wrong(one) for one in columns)
    text = f"{party}: {plural(_used(columns), 'column')}" + (f", {left_out} left out" if left_out else "")
    marks = [", ", tag("span", f"{flagged} to look at", class_="worse")] if flagged else []
    summary = tag("summary", text, *marks)
    is_open = bool(flagged) or len(columns) <= MOST_OPEN_COLUMNS
    return tag("details", summary, table, **({"open": ""} if is_open else {}))


def _looks_wrong(column: Mapping[str, Any]) -> bool:
    return bool(column.get("notes")) and not column.get("left_out")


def _column(one: Mapping[str, Any]) -> list[str]:
    mark = [tag("strong", "Look at this: ")] if _looks_wrong(one) else []
    kind = "worse" if mark else None
    notes = [tag("small", *mark, note, class_=kind) for note in one.get("notes", ())]
    encoded = f"left out: {one['left_out']}" if one.get("left_out") else one.get("encoded") or "–"
    counts = (_count(one["missing"]), _count(one["distinct"]), encoded, _count(one.get("outputs")))
    return [joined([one["name"], *notes]), one["kind"], *counts]


def _findings(record: RunRecord) -> Iterable[Html]:
    """Show what the method found out beside the model, each as a sentence, a table and figures."""
    # Which model serves stands at the head of the page.
    found = [one for one in record.findings.values() if record.evaluation is None or not is_choice(one)]
    for place, finding in enumerate(found, 1):
        yield tag("h3", finding.title)
        if finding.text:
            yield tag("p", finding.text)
        if finding.rows and finding.columns:
            numeric = {
                place
                for place in range(1, len(finding.columns))
                if all(_is_number(row[place]) for row in finding.rows if place < len(row))
            }
            yield _table(finding.title, list(finding.columns), finding.rows, numeric=numeric)
        yield from _finding_figures(f"finding{place}", finding)


def _finding_figures(key: str, finding: Finding) -> Iterable[Html]:
    """Put scatters side by side, as they are for comparing, and give other figures more room."""
    drawn = {number: figures.finding_figure(f"{key}-{number}", one) for number, one in enumerate(finding.figures, 1)}
    is_small = {number: one.kind == "scatter" for number, one in enumerate(finding.figures, 1)}
    for small in (True, False):
        chosen = [figure for number, figure in drawn.items() if is_small[number] == small]
        if chosen:
            yield tag("div", *chosen, class_="figures small" if small else "figures")


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace("−", "-"))
    except ValueError:
        return cell in ("", "–", "—")
    return True


def _coefficients(record: RunRecord) -> Iterable[Html]:
    """Show each party's coefficients, the largest first. A party's own report has its own only."""
    for party, about in record.brought.items():
        if not about["coefficients"]:
            continue
        ordered = sorted(about["coefficients"].items(), key=lambda one: -max(map(abs, one[1])))
        classes = len(ordered[0][1])
        head = ["Column", *(["Coefficient"] if classes == 1 else [f"Class {number + 1}" for number in range(classes)])]
        rows = [[name, *(f"{value:+.4f}" for value in values)] for name, values in ordered]
        caption = f"Coefficients of {party}'s columns, in standard deviations of each column"
        table = _table(caption, head, rows, numeric=set(range(1, classes + 1)))
        summary = tag("summary", f"{party}: {plural(len(rows), 'coefficient')}")
        yield tag("details", summary, table, **({"open": ""} if len(rows) <= MOST_OPEN_COLUMNS else {}))


def _learning(record: RunRecord) -> Iterable[Html]:
    name = headline_of(record.evaluation) if record.evaluation else None
    parts = list(dict.fromkeys(str(point.get("part") or "") for point in record.curves))
    drawn = [
        figures.loss_figure([point for point in record.curves if (point.get("part") or "") == part], None, part)
        for part in parts
    ]
    if len(parts) == 1:
        title = metric_title(name) if name else "metric"
        drawn = [
            figures.loss_figure(record.curves, record.chosen_epoch, parts[0]),
            figures.metric_figure(record.curves, record.chosen_epoch, title),
        ]
    if not any(drawn):
        yield tag("p", "This run recorded no learning curve.")
        return
    if record.chosen_epoch is not None:
        yield tag("p", f"The parties kept the model of epoch {record.chosen_epoch}, chosen on the validation rows.")
    yield tag("div", *drawn, class_="figures")


def _settings(record: RunRecord) -> Iterable[Html]:
    yield tag(
        "p",
        "Digest of the agreed settings, which the parties compare before the first message: ",
        tag("span", record.plan.digest(), class_="hash"),
    )
    rows = [[name, value] for name, value in _flattened(record.settings)]
    if rows:
        yield _table("The agreed settings", ["Setting", "Value"], rows)


def _flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", setting_text(value)


def _check(record: RunRecord) -> Iterable[Html]:
    yield tag("p", "Each party can check its own copy of the run. RUN is the run folder.")
    yield tag("pre", tag("code", "colonnade audit verify RUN"))
    yield tag(
        "ul",
        tag(
            "li",
            "It recomputes the chain of hashes over the ledger's entries. A changed, added or lost entry breaks it.",
        ),
        tag(
            "li",
            "Compare the head hashes below with the ones your partner reads out to you, not with ones sent in a file.",
        ),
        tag("li", "Compare the digest above with the one in your own run folder."),
    )
    if record.checked_ledgers:
        rows = [
            [
                ledger.party,
                f"{ledger.entries:,}",
                tag("span", "yes", class_="yes") if ledger.verified else tag("span", "no", class_="no"),
                listed(ledger.agrees_with) or "not compared",
                tag("span", ledger.head, class_="hash"),
            ]
            for ledger in record.checked_ledgers
        ]
        head = ["Party", "Entries", "Verified", "Agrees with", "Head hash"]
        yield _table("The ledgers when this report was made", head, rows, numeric={1})
    holder = alone_name(record)
    others = [name for name in data_parties(record) if name != holder]
    yield tag("h3", "What this report cannot show")
    yield tag(
        "ul",
        tag(
            "li",
            "A ledger records what crossed colonnade's channels. It says nothing of what was exchanged elsewhere.",
        ),
        tag(
            "li",
            "The quality figures were computed where the labels are, so that "
            f"{listed(others) or 'other parties'} cannot recompute them.",
        ),
        tag("li", "The protections hold assuming each party runs this software as published and keeps its own keys."),
    )


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
