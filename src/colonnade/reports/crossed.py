"""The section of the report on what crossed: every declared message, with what it reveals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.messages import in_names
from colonnade.reports.markup import Html, joined, tag
from colonnade.reports.record import Crossed, RunRecord
from colonnade.reports.tables import table, terms
from colonnade.reports.wording import bytes_text

__all__ = ["crossed"]

_PROTECTIONS = {
    "PLAIN": "The receiver can read the content.",
    "NOISED": "The receiver sees the content with random noise added, which reduces what it can infer.",
    "MASKED": "The receiver sees the content behind a random mask that hides it from the receiver.",
    "ENCRYPTED": "The receiver holds a ciphertext and not the key, assuming the parties do not pool what they hold.",
}


def crossed(record: RunRecord) -> Iterable[Html]:
    """List what crossed, by message and by protection."""
    if not record.crossed:
        yield tag("p", "The ledgers of this run hold no message.")
        return
    yield tag(
        "p",
        "This list is made from the parties' ledgers, in which the channel wrote down every message as it was sent "
        "or received. A message that is not declared cannot be sent. "
        "What one message reveals is stated beside it; what a partner could infer from all of them together is a "
        "further question that this list alone does not answer.",
    )
    used = [name for name in _PROTECTIONS if any(entry.protection == name for entry in record.crossed)]
    used += sorted({entry.protection for entry in record.crossed} - set(used))
    yield terms((_badge(name), _PROTECTIONS.get(name, "")) for name in used)
    yield _totals(record.crossed, used)
    rows = [
        [
            joined([entry.message, tag("small", f"Reveals: {_reveals(entry)}")]),
            f"{entry.sender} → {entry.receiver}",
            _badge(entry.protection),
            entry.paper_step,
            _shapes(entry.shapes),
            f"{entry.count:,}",
            bytes_text(entry.bytes),
        ]
        for entry in record.crossed
    ]
    head = ["Message", "From → to", "Protection", "Step", "Shapes", "Count", "Size"]
    yield table("Every declared message that crossed", head, rows, numeric={5, 6}, kind="crossed")


def _reveals(entry: Crossed) -> str:
    said = entry.reveals.removeprefix("Reveals:").strip()
    return in_names(said, entry.sender, entry.receiver) or "not stated."


def _shapes(shapes: Sequence[str]) -> str:
    # No-break spaces keep a shape on one line.
    shown = ", ".join(shape.replace(" ", "\u00a0") for shape in shapes[:3])
    return f"{shown} and {len(shapes) - 3} more" if len(shapes) > 3 else shown


def _badge(protection: str) -> Html:
    known = protection.lower() if protection in _PROTECTIONS else ""
    return tag("span", protection, class_=f"badge {known}".strip())


def _totals(entries: Sequence[Crossed], used: Sequence[str]) -> Html:
    senders = list(dict.fromkeys(entry.sender for entry in entries))

    def sent(sender: str | None, protection: str | None) -> int:
        return sum(
            entry.bytes
            for entry in entries
            if sender in (None, entry.sender) and protection in (None, entry.protection)
        )

    rows = [[name, *(bytes_text(sent(name, kind)) for kind in used), bytes_text(sent(name, None))] for name in senders]
    foot = ["All", *(bytes_text(sent(None, kind)) for kind in used), bytes_text(sent(None, None))]
    head = ["Sender", *(_badge(kind) for kind in used), "All"]
    return table("Sent by each party, by protection", head, rows, numeric=set(range(1, len(head))), foot=foot)
