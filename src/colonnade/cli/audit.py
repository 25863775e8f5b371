"""`colonnade audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import make_app, print_json, print_table, readable_bytes
from colonnade.launch.folder import RunFolder
from colonnade.ledger import Ledger, compare

app = make_app("Check ledgers and show what crossed.")


@app.callback()
def audit() -> None:
    """Check ledgers and show what crossed."""


@app.command(
    epilog="Examples:  colonnade audit verify runs/churn   |   colonnade audit verify bank.jsonl shop.jsonl --json"
)
def verify(
    paths: Annotated[list[Path], typer.Argument(help="A run folder, or ledger files of one run.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Verify that no ledger was changed and that every two of them agree, then list what crossed.

    Exit code 0: all whole and agreeing. 5: changed, cut off, unfinished, or in disagreement.
    """
    ledgers = _ledgers(paths)
    for ledger in ledgers.values():
        ledger.verify()
    names = list(ledgers)
    for position, first in enumerate(names):
        for second in names[position + 1 :]:
            compare(ledgers[first], ledgers[second])
    if json:
        print_json(
            {
                "verified": True,
                "ledgers": {
                    name: {
                        "entries": len(ledger.entries),
                        "head": ledger.head,
                        "messages": [vars(total) for total in ledger.summary()],
                    }
                    for name, ledger in ledgers.items()
                },
            }
        )
        return
    print_table(
        ["sender", "receiver", "message", "protection", "count", "bytes"],
        [
            [name, total.peer, total.message, total.protection, str(total.count), readable_bytes(total.bytes)]
            for name, ledger in ledgers.items()
            for total in ledger.summary()
            if total.direction == "sent"
        ],
    )
    typer.echo("")
    for name, ledger in ledgers.items():
        typer.echo(f"{name}: {len(ledger.entries)} entries, chain intact and closed, head {ledger.head[:16]}")
    if len(ledgers) > 1:
        typer.echo("The ledgers agree: everything received is what the other side recorded sending.")


def _ledgers(paths: list[Path]) -> dict[str, Ledger]:
    if len(paths) == 1 and not paths[0].is_file():
        return RunFolder(paths[0]).ledgers()
    return {str(path): Ledger.read(path) for path in paths}
