"""How long the parts of the product are that issues are to make smaller, with the most lines they may have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.form import Findings, main

SOURCE = Path(__file__).parent.parent / "src" / "colonnade"


def lines(files: Iterable[Path]) -> int:
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def measure(arguments: argparse.Namespace) -> Findings:
    everything = sorted(SOURCE.rglob("*.py"))
    methods = [file for file in everything if "methods" in file.parts]
    planning = [
        one for one in everything if re.search("forecast|rehears|made_up", one.stem) or one.match("cli/plan.py")
    ]
    raised = sum(
        file.read_text("utf-8").count("raise WrongContent")
        for file in everything
        if {"methods", "exchanges"} & set(file.parts)
    )
    findings = Findings({"lines of everything": lines(everything)})
    for room in sorted({file.relative_to(SOURCE).parts[0] for file in everything if file.parent != SOURCE}):
        findings.figures[f"lines of {room}"] = lines((SOURCE / room).rglob("*.py"))
    for method in sorted({file.parent for file in methods if file.parent.name != "methods"}):
        findings.figures[f"lines of methods.{method.name}"] = lines(method.glob("*.py"))
    # Its guard is among its files.
    findings.bar("lines of secure_lr with its guard", findings.figures["lines of methods.secure_lr"], at_most=500)
    findings.bar("lines of splitnn", findings.figures["lines of methods.splitnn"], at_most=700)
    findings.bar("lines for plan", lines(planning), at_most=700)
    findings.bar("lines of messages in methods", lines(one for one in methods if "messages" in one.stem), at_most=1700)
    findings.bar("raise WrongContent in methods and exchanges", raised, at_most=40)
    findings.bar("lines of launch", findings.figures["lines of launch"], at_most=5000)
    return findings


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure)
