"""`colonnade methods`."""

from __future__ import annotations

import dataclasses
import json as jsonlib
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table
from colonnade.launch.settings import config_to_json
from colonnade.methods import METHODS, method_named

app = make_app("List the methods and when to choose which.")


@app.command(epilog=examples("colonnade methods", "colonnade methods splitnn", "colonnade methods --json"))
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One method, to see its roles, stages, settings and messages.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, or show one: roles, stages, settings with defaults, and every message it may send."""
    chosen = METHODS if name is None else (method_named(name),)
    documents = [
        {
            "name": method.name,
            "title": method.title,
            "situation": method.situation,
            "citation": method.citation,
            "roles": {role.name: role.holds for role in method.roles},
            "stages": list(method.stages),
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
    echo(f"{method.title} ({method.name}): {method.situation}\n{method.citation}\n")
    print_table(["role", "brings"], [[role.name, role.holds] for role in method.roles])
    echo(f"\nStages: {', '.join(method.stages)}\n")
    settings = config_to_json(method.config())
    fields = [field.name for field in dataclasses.fields(method.config)]
    hints = get_type_hints(method.config)
    print_table(
        ["setting in [config]", "default", "takes"],
        [[field, jsonlib.dumps(settings[field]), _words(hints[field])] for field in fields],
    )
    echo()
    for one in method.declarations:
        echo(f"{one.name}: {one.sender} → {one.receiver}, {one.protection}\n  {one.summary}\n  Reveals: {one.reveals}")


def _words(hint: Any) -> str:
    """Return what a setting takes, in the words of a TOML file.

    >>> _words(tuple[int, ...]), _words(Literal["relu", "tanh"]), _words(tuple[tuple[str, ...], ...])
    ('a list of whole numbers', 'relu, tanh', 'a list of lists of texts')
    >>> _words(tuple[Literal["relu", "tanh"], ...])
    'a list of any of relu, tanh'
    """
    plain = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    if hint in plain:
        return plain[hint]
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple and get_origin(get_args(hint)[0]) is Literal:
        return f"a list of any of {_words(get_args(hint)[0])}"
    if get_origin(hint) is tuple:
        one, _, rest = _words(get_args(hint)[0]).removeprefix("a ").partition(" of ")
        return f"a list of {one}s" + (f" of {rest}" if rest else "")
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(_words(one) for one in get_args(hint) if one is not type(None))
    return "a table"
