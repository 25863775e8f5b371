"""Tables and lists of terms, as every section of the page has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from html import unescape

from colonnade.reports.markup import Html, tag

__all__ = ["caption", "table", "terms"]

# With more columns, each row becomes a list of its own where the page is as narrow as a telephone.
_MOST_SIDE_BY_SIDE = 2


def terms(pairs: Iterable[tuple[str, str]]) -> Html:
    """Build a list of what words mean."""
    return tag("dl", *(part for title, text in pairs for part in (tag("dt", title), tag("dd", text))), class_="terms")


def caption(text: str) -> Html:
    """Build a table's caption."""
    # The inner element keeps the caption in view while a wide table scrolls under it.
    return tag("caption", tag("span", text))


def table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Set[int] = frozenset(),
    foot: Sequence[str] | None = None,
    kind: str | None = None,
) -> Html:
    """Build a table whose first column names its rows; wide ones scroll by themselves, also from the keyboard."""
    labels = [unescape(re.sub("<[^>]*>", "", name)) if isinstance(name, Html) else name for name in head]
    stacks = len(head) > _MOST_SIDE_BY_SIDE

    def align(index: int) -> str | None:
        return "n" if index in numeric else None

    def line(cells: Sequence[str]) -> Html:
        rest = (
            tag("td", cell, class_=align(index), data_label=labels[index] if stacks else None)
            for index, cell in enumerate(cells[1:], start=1)
        )
        return tag("tr", tag("th", cells[0], scope="row"), *rest)

    heads = (tag("th", name, scope="col", class_=align(index)) for index, name in enumerate(head))
    made = tag(
        "table",
        caption(title),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(line(row) for row in rows)),
        tag("tfoot", line(foot)) if foot else None,
        class_=" ".join(filter(None, (kind, "stack" if stacks else None))) or None,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=title)
