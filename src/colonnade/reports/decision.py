"""The head of the page: what was decided, what to be warned of, and the figures to remember."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from colonnade.metrics import Evaluation
from colonnade.reports.markup import Html, joined, tag
from colonnade.reports.record import RunRecord
from colonnade.reports.tables import terms
from colonnade.reports.wording import (
    alone_name,
    bytes_text,
    gain_text,
    headline_of,
    interval_text,
    metric_title,
    number,
    plural,
    served_model,
    signed,
    verdict,
)
from colonnade.session import Finding

__all__ = ["decision", "is_choice"]


def decision(record: RunRecord, today: date) -> Html:
    """Say first what a reader must know who reads nothing else."""
    marks = list(_marks(record, today))
    return tag(
        "header",
        tag("p", f"colonnade run report · {record.plan.name}", class_="eyebrow"),
        tag("h1", record.title),
        tag(
            "section",
            tag("h2", "What was decided", id="decided-title"),
            terms((title, text) for title, text in _decided(record) if text),
            class_="decided",
            id="decided",
            aria_labelledby="decided-title",
        ),
        _key_figures(record),
        tag(
            "section",
            tag("h2", "What to be warned of", id="warned-title"),
            tag("ul", *(tag("li", _led(mark)) for mark in marks)),
            class_="marks",
            id="warned",
            role="note",
            aria_labelledby="warned-title",
        )
        if marks
        else None,
    )


def _decided(record: RunRecord) -> Iterator[tuple[str, str]]:
    first, second = verdict(record)
    served = record.evaluation
    if served is None:
        yield "Outcome", " ".join((first, second)).strip()
        for party, part in record.parts.items():
            if "is_needed" in part.document:
                use = "are needed to score rows" if part.document["is_needed"] else "are not needed to score rows"
                yield f"Columns of {party}", f"They {use}, as {alone_name(record)} says."
        return
    # The choice itself is said in this page's own words, so that its reasons are enough.
    reason = next((one.text.partition(": ")[2] for one in record.findings.values() if is_choice(one)), "")
    because = tag("small", reason[0].upper() + reason[1:]) if reason else None
    yield "Which model serves", joined([served_model(record), because])
    yield "How good it is", first
    yield f"Against {alone_name(record)} alone", second
    yield "Threshold", _threshold(served)


def is_choice(finding: Finding) -> bool:
    """Tell whether a finding is about which model serves."""
    return finding.name.split(" of ")[0] == "choice"


def _threshold(served: Evaluation) -> str:
    point = served.operating
    if point is None:
        return ""
    said = f"From a probability of {point.threshold:.3g} on, a row is called '{point.positive}': {point.called:,} rows"
    if point.precision is not None:
        said += f", {point.precision:.0%} of them rightly"
        said += "" if point.lift is None else f", {point.lift:.3g} times as often as among all rows"
    if point.recall is not None:
        said += f"; {point.recall:.0%} of all '{point.positive}' are found"
    return joined([f"{said}.", tag("small", point.rule)])


def _marks(record: RunRecord, today: date) -> Iterator[str]:
    for ledger in record.checked_ledgers:
        if not ledger.verified:
            yield f"The ledger of {ledger.party} does not verify: do not rely on this report."
    until = record.plan.keep_until
    if until is not None and until < today:
        yield f"Retention is over: this run was to be kept until {until.isoformat()}. Delete its folder."
    yield from record.marks
    # Of the model that serves only: what is wrong with the others serves nobody.
    yield from () if record.evaluation is None else record.evaluation.warnings


def _led(mark: str) -> Html:
    """Show by how a warning begins what it is about."""
    lead, colon, rest = mark.partition(": ")
    return joined([tag("strong", f"{lead}:"), f" {rest}"]) if colon else joined([mark])


def _key_figures(record: RunRecord) -> Html:
    return tag(
        "dl",
        *(
            tag("div", tag("dt", title), tag("dd", value, tag("small", extra) if extra else None))
            for title, value, extra in _figures(record)
        ),
        class_="key",
    )


def _figures(record: RunRecord) -> Iterable[tuple[str, str, str | None]]:
    served = record.evaluation
    name = headline_of(served) if served else None
    if served and name:
        yield metric_title(name), number(name, served.metrics[name]), interval_text(served, name)
        alone = record.evaluations.get("alone")
        if alone and record.served != "alone" and name in alone.metrics:
            gap, gain = signed(name, served.metrics[name], alone.metrics[name]), record.gains.get(name)
            yield (
                f"Against {alone_name(record)} alone",
                gap,
                f"in {metric_title(name)}" if gain is None else gain_text(gain),
            )
    shared = [about["shared_rows"] for about in record.brought.values() if about["shared_rows"] is not None]
    if shared:
        yield "Shared rows", f"{max(shared):,}", None
    if record.crossed:
        sent = sum(entry.bytes for entry in record.crossed)
        messages = sum(entry.count for entry in record.crossed)
        readable = sum(entry.bytes for entry in record.crossed if entry.protection == "PLAIN")
        yield "Crossed", bytes_text(sent), plural(messages, "message")
        yield "Sent readable", bytes_text(readable), "without protection"
