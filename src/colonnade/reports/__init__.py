"""One self-contained HTML page per run: how good the model is, what crossed, and how to check both.

The page asks nothing of the network: style and figures are inside it, and its own security policy forbids the rest.
"""

from colonnade.reports.page import render, write
from colonnade.reports.record import FORMAT, CheckedLedger, Consent, Crossed, PartyRun, RunRecord, check_format
from colonnade.reports.summary import as_markup, as_text

__all__ = [
    "FORMAT",
    "CheckedLedger",
    "Consent",
    "Crossed",
    "PartyRun",
    "RunRecord",
    "as_markup",
    "as_text",
    "check_format",
    "render",
    "write",
]
