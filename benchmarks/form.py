"""The one form all benchmarks share: figures, bars, `--json`, and an exit status that says whether every bar holds."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Findings:
    """What a benchmark found: figures by name, and bars that a figure must clear."""

    figures: dict[str, Any] = field(default_factory=dict)
    bars: dict[str, dict[str, Any]] = field(default_factory=dict)

    def bar(self, name: str, value: float, *, at_least: float | None = None, at_most: float | None = None) -> None:
        """Hold a value against one limit."""
        if (at_least is None) == (at_most is None):
            raise ValueError("a bar has exactly one limit")
        holds = value >= at_least if at_least is not None else value <= at_most  # type: ignore[operator]
        limit = {"at_least": at_least} if at_least is not None else {"at_most": at_most}
        self.bars[name] = {"value": value, **limit, "holds": bool(holds)}

    @property
    def all_hold(self) -> bool:
        return all(bar["holds"] for bar in self.bars.values())


def main(description: str, measure: Callable[[argparse.Namespace], Findings], add: Any = None) -> None:
    """Parse the command line, measure, print, and exit 0 only when every bar holds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    if add is not None:
        add(parser)
    arguments = parser.parse_args()
    findings = measure(arguments)
    findings.figures.setdefault("python", platform.python_version())
    if arguments.json:
        print(json.dumps({"figures": findings.figures, "bars": findings.bars}))
    else:
        for name, value in findings.figures.items():
            print(f"{name:44} {value:.4g}" if isinstance(value, float) else f"{name:44} {value}")
        for name, bar in findings.bars.items():
            limit = f">= {bar['at_least']}" if "at_least" in bar else f"<= {bar['at_most']}"
            print(f"{'ok  ' if bar['holds'] else 'FAIL'} {name:39} {bar['value']:.4g} {limit}")
    sys.exit(0 if findings.all_hold else 1)


def say(text: str) -> None:
    """Tell a person what is going on, without touching stdout."""
    print(text, file=sys.stderr, flush=True)
