"""HTML that is escaped unless it was built here.

A plain string is text and is always escaped; only :class:`Html` passes as it is. Party and column names come from
people we do not know, so forgetting to escape must not be possible. What would not be seen is spelt out.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from colonnade.text import spelt_out

__all__ = ["Html", "coded", "joined", "tag"]

_EMPTY = frozenset({"br", "meta"})


class Html(str):
    """Markup that is safe to place into a page."""

    __slots__ = ()


def joined(children: Iterable[str | None]) -> Html:
    """Join text and markup, escaping the text and leaving out ``None``."""
    return Html("".join(child if isinstance(child, Html) else _text(child) for child in children if child is not None))


def tag(element: str, /, *children: str | None, **attributes: str | None) -> Html:
    """Build one element. ``class_`` and ``http_equiv`` become ``class`` and ``http-equiv``.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _EMPTY:
        return Html(f"<{element}{written}>")
    return Html(f"<{element}{written}>{joined(children)}</{element}>")


def coded(text: str) -> Html:
    """Show what stands between backticks as code.

    >>> coded("set `a` < b")
    'set <code>a</code> &lt; b'
    """
    return joined([tag("code", part) if place % 2 else part for place, part in enumerate(text.split("`"))])


def _text(text: object) -> str:
    return escape(spelt_out(str(text)))
