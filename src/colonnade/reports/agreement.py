"""The section of the report on what was agreed: for what, by whom, under which rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import date

from colonnade.reports.markup import Html, coded, joined, tag
from colonnade.reports.record import Consent, RunRecord
from colonnade.reports.tables import table, terms
from colonnade.reports.wording import listed, moment_text, setting_text
from colonnade.session import Alignment, PolicyRules
from colonnade.settings import Setting, settings_of

__all__ = ["agreement"]

# Once: Python 3.11 cannot read source in two threads at a time, and parties of one process write reports in theirs.
_ALIGNMENT, _POLICY = settings_of(Alignment), settings_of(PolicyRules)


def agreement(record: RunRecord, today: date) -> Iterable[Html]:
    """Say what the model is for, who consented when and how, and which rules were in force."""
    yield terms(_agreed(record, today))
    yield tag("h3", "Consent")
    yield from _consent(record)
    yield tag("h3", "Rules of alignment")
    values = asdict(record.plan.alignment)
    rows = [[_rule(one), setting_text(values[one.name])] for one in _ALIGNMENT]
    yield table("How shared rows are found, and when two ids are equal", ["Rule", "Value"], rows, kind="rules")
    yield tag("h3", "Policies")
    yield from _policies(record)


def _agreed(record: RunRecord, today: date) -> Iterator[tuple[str, str]]:
    plan = record.plan
    yield "Purpose", plan.purpose or "None was agreed on: run.toml has no purpose in [run]."
    kept = plan.retention or "None was agreed on: run.toml has no retention in [run]."
    if plan.keep_until is not None:
        state = "has passed: delete the run's folder" if plan.keep_until < today else f"had not passed on {today}"
        kept = joined([kept, tag("small", f"{plan.keep_until} {state}.")])
    yield "Retention", kept
    yield "Parties", listed([f"{party} as {record.plan.role_of(party)}" for party in record.brought])
    yield "Agreement", tag("span", plan.digest(), class_="hash")


def _consent(record: RunRecord) -> Iterator[Html]:
    known = record.consents
    if not any(known.values()) and len(known) == len(record.brought):
        yield tag(
            "p",
            f"Nobody was asked, because all parties' tables lay on one machine, in the hands of who started the run "
            f"({record.launch}). Each party of a run between organisations is asked before its first message leaves.",
        )
        return
    rows = [
        [party, *(_consent_of(known[party], record) if party in known else ["known there only", "", ""])]
        for party in record.brought
    ]
    yield table(
        "Who agreed to what its party sends, for the agreement above", ["Party", "How", "When", "Account"], rows
    )


def _consent_of(consent: Consent | None, record: RunRecord) -> list[str]:
    if consent is None:
        return ["no word is kept in this run folder", "", ""]
    how = consent.how
    if consent.digest != record.plan.digest():
        how += f", for another agreement ({consent.digest[:16]}…)"
    return [how, moment_text(consent.when) or "not kept", consent.account or "not kept"]


def _rule(one: Setting) -> Html:
    return joined([one.name, tag("small", coded(one.meaning))])


def _policies(record: RunRecord) -> Iterator[Html]:
    known = {party: asdict(rules) for party, rules in record.rules.items() if rules is not None}
    elsewhere = [party for party in record.brought if party not in known]
    if known:
        rows = [
            [_rule(one), *(setting_text(rules[one.name] or None, none="no rule") for rules in known.values())]
            for one in _POLICY
        ]
        title = "What each party allowed when it ended the run, whatever was asked"
        yield table(title, ["Rule", *known], rows, kind="rules")
    if elsewhere:
        yield tag(
            "p",
            f"What {listed(elsewhere)} allowed is not known here: no partner is shown a party's policy.",
            class_="soft",
        )
