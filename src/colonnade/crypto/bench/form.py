"""The one form all benchmarks share: figures, and bars that a figure must clear."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Findings"]

_MARKS = {True: "ok  ", False: "FAIL", None: "    "}


@dataclass
class Findings:
    """What a benchmark found: figures by name, and bars that a figure must clear."""

    figures: dict[str, Any] = field(default_factory=dict)
    bars: dict[str, dict[str, Any]] = field(default_factory=dict)
    _at_any_size: set[str] = field(default_factory=set)

    def bar(
        self,
        name: str,
        value: float,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        at_any_size: bool = False,
    ) -> None:
        """Hold a value against one limit; one that must be kept at any size is about what is right, not how fast."""
        if (at_least is None) == (at_most is None):
            raise ValueError("a bar has exactly one limit")
        holds = value >= at_least if at_least is not None else value <= at_most  # type: ignore[operator]
        limit = {"at_least": at_least} if at_least is not None else {"at_most": at_most}
        self.bars[name] = {"value": value, **limit, "holds": bool(holds)}
        if at_any_size:
            self._at_any_size.add(name)

    def take_as_quick(self) -> None:
        """Leave unjudged, as None, what tiny sizes say nothing about: all bars but those that hold at any size."""
        for name in self.bars.keys() - self._at_any_size:
            self.bars[name]["holds"] = None

    @property
    def all_hold(self) -> bool:
        """Return whether every bar that is judged holds."""
        return all(bar["holds"] is not False for bar in self.bars.values())

    def document(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return {"figures": {**self.figures, "python": platform.python_version()}, "bars": self.bars}

    def lines(self) -> Iterator[str]:
        """Return everything as text, a line for each figure and each bar."""
        for name, value in self.document()["figures"].items():
            yield f"{name:44} {value:.4g}" if isinstance(value, float) else f"{name:44} {value}"
        for name, bar in self.bars.items():
            limit = f">= {bar['at_least']}" if "at_least" in bar else f"<= {bar['at_most']}"
            unjudged = " (not judged)" if bar["holds"] is None else ""
            yield f"{_MARKS[bar['holds']]} {name:39} {bar['value']:.4g} {limit}{unjudged}"
