"""`colonnade methods`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from colonnade.cli.output import make_app, print_json, print_table
from colonnade.launch.settings import config_to_json
from colonnade.methods import METHODS, method_named

app = make_app("List the methods and when to choose which.")


@app.command(epilog="Examples:  colonnade methods   |   colonnade methods splitnn   |   colonnade methods --json")
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, to see its roles, settings and messages.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, or show one: roles, settings with defaults, and every message it may send."""
    chosen = METHODS if name is None else (method_named(name),)
    documents = [
        {
            "name": method.name,
            "title": method.title,
            "situation": method.situation,
            "citation": method.citation,
            "roles": {role.name: role.holds for role in method.roles},
            "settings": config_to_json(method.config()),
            "messages": [
                {
                    "message": one.name,
                    "from": one.sender,
                    "to": one.receiver,
                    "protection": one.protection.value,
                    "step": one.step,
                    "reveals": one.reveals,
                }
                for one in method.declarations
            ],
        }
        for method in chosen
    ]
    if json:
        print_json(documents)
        return
    if name is None:
        print_table(["method", "when to choose it"], [[method.name, method.situation] for method in METHODS])
        return
    (method,) = chosen
    typer.echo(f"{method.title} ({method.name}): {method.situation}\n{method.citation}\n")
    print_table(["role", "brings"], [[role.name, role.holds] for role in method.roles])
    typer.echo("")
    settings = config_to_json(method.config())
    fields = [field.name for field in dataclasses.fields(method.config)]
    print_table(["setting in [config]", "default"], [[field, str(settings[field])] for field in fields])
    typer.echo("")
    for one in method.declarations:
        typer.echo(
            f"{one.name}: {one.sender} → {one.receiver}, {one.protection}\n  {one.summary}\n  Reveals: {one.reveals}"
        )
