"""How a benchmark is run here: `--json`, `--quick`, and an exit status that says whether every bar holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from colonnade.crypto.bench.form import Findings

__all__ = ["Findings", "main", "say"]


def main(description: str, measure: Callable[[argparse.Namespace], Findings], add: Any = None) -> None:
    """Parse the command line, measure, print, and exit 0 only when every bar holds that is judged."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="all of it in a few seconds, on tiny keys and tables; bars are not judged that say nothing at such sizes",
    )
    if add is not None:
        add(parser)
    arguments = parser.parse_args()
    findings = measure(arguments)
    if arguments.quick:
        findings.take_as_quick()
    if arguments.json:
        print(json.dumps(findings.document()))
    else:
        for line in findings.lines():
            print(line)
    sys.exit(0 if findings.all_hold else 1)


def say(text: str) -> None:
    """Tell a person what is going on, without touching stdout."""
    print(text, file=sys.stderr, flush=True)
