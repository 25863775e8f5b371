"""Before anything leaves: what a run will send, and the operator's word."""

from __future__ import annotations

import sys

from colonnade.cli.output import Interrupted, say, table_lines
from colonnade.errors import PolicyRefused
from colonnade.launch.join import Joining
from colonnade.messages import in_names
from colonnade.session import ALIGN

__all__ = ["ask_consent"]

_STAGES = {ALIGN: "An alignment for the run", "train": "The run", "predict": "A prediction with the run"}


def ask_consent(joining: Joining) -> str:
    """Show what this party will send, by message and protection, and ask for consent."""
    plan = joining.plan
    what = _STAGES.get(plan.stage, f"The stage {plan.stage} of the run")
    say(f"\n{what} '{plan.name}' ({plan.method}) will send from '{joining.home.name}':\n")
    for line in table_lines(
        ["message", "to", "protection", "reveals"],
        [
            [one.name, peer, one.protection.value, in_names(one.reveals, joining.home.name, peer)]
            for one, peer in joining.sends()
        ],
        wrapped=True,
    ):
        say(line)
    say("")
    for words in joining.agreed_words():
        say(f"{words}\n")
    for warning in joining.warnings():
        say(f"{warning}\n")
    if not sys.stdin.isatty():
        raise PolicyRefused(
            "Nobody is here to agree to this, so nothing was sent. Look at the list above and give the command again "
            'with --yes, or let party.toml decide with consent = "policy" in [policy].'
        )
    # Not by input(), which would ask on stdout, where data goes.
    sys.stderr.write("Send these? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Interrupted("Nothing was sent.")
    return "given at the terminal"
