"""`colonnade doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, say
from colonnade.launch.doctor import Finding, examine_home, examine_peer

app = make_app("Check a home, and the connection to a partner, before there is a run.")


@app.command(epilog=examples("colonnade doctor", "colonnade doctor --peer shop", "colonnade doctor --home bank --json"))
def doctor(
    home: Annotated[Path, typer.Option(help="The party's home.")] = Path(),
    peer: Annotated[
        str | None,
        typer.Option(help="Also talk to this partner, who gives the same command with our name at the same time."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at home, key, certificate, partners, table, disk and port; with --peer, at the connection to a partner.

    Every finding is PASS, or FAIL with the fix. The exit code is 0 if all passed, else 1.
    """
    findings = _shown(examine_home(home), json)
    if peer is not None:
        if not json:
            say(f"Waiting for '{peer}' to give 'colonnade doctor --peer' with our name …")
        findings += _shown(examine_peer(home, peer), json)
    failed = sum(not one.passed for one in findings)
    if json:
        print_json({"passed": failed == 0, "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        say("All is well." if not failed else f"{failed} of {len(findings)} checks failed.")
    if failed:
        raise typer.Exit(1)


def _shown(findings: Iterable[Finding], quiet: bool) -> list[Finding]:
    seen = []
    for one in findings:
        seen.append(one)
        if not quiet:
            echo(f"{'PASS' if one.passed else 'FAIL'}  {one.check}: {one.seen}")
            if not one.passed and one.fix:
                echo(f"      {one.fix}")
    return seen
