"""Whether a policy's rules name things that exist."""

from __future__ import annotations

from difflib import get_close_matches

from colonnade.errors import ConfigError
from colonnade.messages import Protection, declaration_of
from colonnade.session import CONTROL, Policy

__all__ = ["check_message_names"]


def check_message_names(policy: Policy) -> None:
    """Refuse a policy that forbids messages which no method has: a slip there would forbid nothing."""
    if not policy.unsent_messages:
        return
    # Methods need torch, which takes seconds to load; most policies name no message.
    from colonnade import alignment
    from colonnade.methods import known_methods

    known = {one.name for method in known_methods()[0] for one in method.declarations}
    known |= {declaration_of(cls).name for cls in alignment.MESSAGES}
    exempt = {declaration_of(cls).name for cls in CONTROL}
    for name in policy.unsent_messages:
        if name in exempt:
            raise ConfigError(
                f"policy.never_send names '{name}', a message of the session itself. These are exempt: no run could do "
                "without, and they carry nothing derived from a table. Leave it out."
            )
        if name not in known:
            # Capitals are the likeliest slip; and a list of all messages would help nobody.
            by_letters = {one.lower(): one for one in [*known, *Protection]}
            close = get_close_matches(name.lower(), sorted(by_letters), n=1)
            hint = f"Did you mean '{by_letters[close[0]]}'? " if close else ""
            raise ConfigError(
                f"policy.never_send names '{name}', which is neither a protection nor a message of any method. {hint}"
                "'colonnade methods NAME' lists a method's messages."
            )
