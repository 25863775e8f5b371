"""`colonnade methods`."""

from __future__ import annotations

from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, say
from colonnade.methods import known_methods, method_named
from colonnade.session import Method
from colonnade.settings import config_to_json, presets_of, settings_of

app = make_app("List the methods and when to choose which.")


@app.command(epilog=examples("colonnade methods", "colonnade methods splitnn", "colonnade methods --json"))
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One method, to see its roles, stages, settings and messages.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, or show one: roles, stages, settings with defaults, and every message it may send."""
    chosen, faults = known_methods() if name is None else ((method_named(name),), ())
    for fault in faults:
        say(f"Warning: {fault}")
    documents = [
        {
            "name": method.name,
            "title": method.title,
            "situation": method.situation,
            "citation": method.citation,
            "package": method.package or "colonnade",
            "roles": {role.name: role.holds for role in method.roles},
            "stages": list(method.stages),
            "settings": {
                setting.name: {"takes": setting.takes, "default": default, "meaning": setting.meaning}
                for setting, default in zip(
                    settings_of(method.config), config_to_json(method.config()).values(), strict=True
                )
            },
            "presets": presets_of(method.config),
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
        print_table(["method", "when to choose it"], [[one.name, _situation(one)] for one in chosen])
        return
    (method,) = chosen
    echo(f"{method.title} ({method.name}): {_situation(method)}\n{method.citation}\n")
    print_table(["role", "brings"], [[role.name, role.holds] for role in method.roles])
    echo(f"\nStages: {', '.join(method.stages)}\n")
    echo("Settings in [config]:")
    for setting in settings_of(method.config):
        echo(f"  {setting.name}: {setting.takes}; default {setting.default}\n    {setting.meaning}")
    for name, about in presets_of(method.config).items():
        echo(f'  preset = "{name}" in place of the defaults: {about}')
    echo()
    for one in method.declarations:
        echo(f"{one.name}: {one.sender} → {one.receiver}, {one.protection}\n  {one.summary}\n  Reveals: {one.reveals}")


def _situation(method: Method) -> str:
    return f"{method.situation} (from {method.package})" if method.package else method.situation
