"""A run in a few lines: for a console, and for a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from colonnade.reports.markup import Html, tag
from colonnade.reports.record import RunRecord
from colonnade.reports.wording import bytes_text, plural, verdict
from colonnade.text import spelt_out

__all__ = ["as_markup", "as_text"]


def as_text(record: RunRecord) -> str:
    """Return what was run by whom, how good it is, and where it lies, each on a line."""
    return "\n".join(map(spelt_out, _lines(record)))


def _lines(record: RunRecord) -> Iterator[str]:
    parties = ", ".join(f"{party} ({about['role']})" for party, about in record.brought.items())
    stage = "" if record.plan.stage == "train" else f", stage {record.plan.stage}"
    yield f"Run {record.plan.name} of {record.method.name}{stage}: {parties}{_shared(record)}"
    yield verdict(record)[0]
    if record.folder is not None:
        yield f"Folder: {record.folder}"


def _shared(record: RunRecord) -> str:
    known = [about["shared_rows"] for about in record.brought.values() if about["shared_rows"] is not None]
    return f"; {plural(max(known), 'shared row')}" if known else ""


def as_markup(record: RunRecord) -> Html:
    """Return the same with what each party brought and sent, as a piece of a page: no style sheet, no script."""
    sentence, judgement = verdict(record)
    sent = dict.fromkeys(record.brought, 0)
    for one in record.crossed:
        sent[one.sender] = sent.get(one.sender, 0) + one.bytes
    rows = [
        (party, about["role"], _count(about["rows"]), str(len(about["columns"])), bytes_text(sent[party]))
        for party, about in record.brought.items()
    ]
    marks = [tag("li", mark) for mark in record.marks]
    return tag(
        "div",
        tag("p", tag("strong", record.title), _shared(record)),
        tag("p", f"{sentence} {judgement}".strip()),
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", one) for one in ("Party", "Role", "Rows", "Columns", "Sent")))),
            tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)),
        ),
        tag("details", tag("summary", f"Read this first: {plural(len(marks), 'remark')}"), tag("ul", *marks))
        if marks
        else None,
        tag("p", "Folder: ", tag("code", str(record.folder))) if record.folder is not None else None,
    )


def _count(rows: int | None) -> str:
    return "not known here" if rows is None else f"{rows:,}"
