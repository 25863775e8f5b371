"""Titles as text that the parties' tables can hold: plain words, several titles in one cell."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["join_titles", "title_words"]

_APOSTROPHES = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}]")
_WORDS = re.compile(r"[^\W_]+")


def title_words(title: str) -> str:
    """Return the words of a title in lower case, a single space apart; apostrophes join what they part.

    >>> title_words("Don't Look Back | PHOTOS")
    'dont look back photos'
    """
    return " ".join(_WORDS.findall(_APOSTROPHES.sub("", title.lower())))


def join_titles(titles: Iterable[str]) -> str:
    """Return titles as one text, with a bar between two; the words of a title never contain one.

    >>> join_titles(["fargo", "toy story"])
    'fargo | toy story'
    """
    return " | ".join(titles)
