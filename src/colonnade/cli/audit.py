"""`colonnade audit`."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, readable_bytes
from colonnade.errors import ConfigError
from colonnade.launch.run_folder import RunFolder
from colonnade.ledger import Ledger, compare

app = make_app("Check ledgers and show what crossed.")


@app.callback(epilog=examples("colonnade audit verify runs/churn"))
def audit() -> None:
    """Check ledgers and show what crossed."""


@app.command(
    epilog=examples("colonnade audit verify runs/churn", "colonnade audit verify bank/runs/churn shop.jsonl --json")
)
def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="A run folder, or ledger files of one run.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Verify ledgers and list what crossed.

    No ledger may have been changed, and every two of them must agree.
    Exit code 0: all whole and agreeing. 5: changed, cut off, unfinished, or in disagreement.
    """
    ledgers = _verified(_ledgers(paths))
    if json:
        print_json(
            {
                "verified": True,
                "ledgers": {
                    name: {
                        "entries": len(ledger.entries),
                        "head": ledger.head,
                        "messages": [vars(total) for total in ledger.summary()],
                        "openings": ledger.openings(),
                    }
                    for name, ledger in ledgers.items()
                },
            }
        )
        return
    print_table(
        ["sender", "receiver", "message", "protection", "count", "bytes"],
        [
            [
                *((name, total.peer) if total.direction == "sent" else (total.peer, name)),
                *(total.message, total.protection, str(total.count), readable_bytes(total.bytes)),
            ]
            for name, ledger in ledgers.items()
            for total in ledger.summary()
            # A partner's own ledger is the better witness of what it sent, where we have it.
            if total.direction == "sent" or total.peer not in ledgers
        ],
    )
    echo()
    for name, ledger in ledgers.items():
        echo(f"{name}: {len(ledger.entries)} entries, chain intact and closed, head {ledger.head[:16]}")
        for peer, counts in ledger.openings().items():
            listed = ", ".join(f"{message} {count} times" for message, count in counts.items())
            echo(f"{name} decrypted for {peer}: {listed}")
    if len(ledgers) > 1:
        echo("The ledgers agree: everything received is what the other side recorded sending.")


def _ledgers(paths: list[Path]) -> list[Ledger]:
    if len(paths) == 1 and not paths[0].is_file():
        return list(RunFolder(paths[0]).ledgers().values())
    paths = [path / "ledger.jsonl" if (path / "ledger.jsonl").is_file() else path for path in paths]
    for path in paths:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder without a ledger. Give one run folder alone, or ledger files.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("A ledger is given twice. Give the ledger of each party once.")
    return [Ledger.read(path) for path in paths]


def _verified(ledgers: list[Ledger]) -> dict[str, Ledger]:
    """Return whole and agreeing ledgers by their parties; raise LedgerBroken, with the file's name, otherwise."""
    for ledger in ledgers:
        ledger.verify()
    for first, second in combinations(ledgers, 2):
        compare(first, second)
    return {ledger.entries[0].content["party"]: ledger for ledger in ledgers}
