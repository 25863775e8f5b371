"""What a party allows, whatever the run asks: the ``[policy]`` table of ``party.toml``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from colonnade.errors import ConfigError, PolicyRefused, did_you_mean
from colonnade.messages import Declaration, Protection
from colonnade.settings import described

__all__ = ["Policy", "PolicyRules"]

# As messages are named, by themselves or with a protection before it; these are in capitals only.
_MESSAGE = re.compile(rf"(?:(?:{'|'.join(Protection)}) )?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


@described
@dataclass(frozen=True, kw_only=True)
class PolicyRules:
    """The rules of a policy, as they are written; None means that a rule is absent."""

    methods: tuple[str, ...] | None = None
    """Methods this party takes part in."""
    partners: tuple[str, ...] | None = None
    """Partners it exchanges messages with."""
    never_send: tuple[str, ...] = ()
    """What must not leave: any of `PLAIN`, `NOISED`, `MASKED`, `ENCRYPTED`, or messages by name, always (`Codes`) or
    under one protection (`PLAIN Codes`)."""
    minimum_shared_rows: int = 0
    """Fewest shared rows for a run or an alignment."""
    maximum_runs: int | None = None
    """Most runs of this party in one `runs` folder."""
    maximum_alignments: int | None = None
    """How often rows shared with one partner may be looked for anew, in this home's life."""
    predictions_per_day: int | None = None
    """How many of one partner's rows this party helps to score within 24 hours."""
    consent: Literal["ask", "policy"] = "ask"
    """`ask` an operator before a run's first message leaves, or let the `policy` be enough."""

    def __post_init__(self) -> None:
        for name in self.never_send:
            if name in Protection.__members__:
                continue
            if not _MESSAGE.fullmatch(name) or name.upper() in Protection.__members__:
                raise ConfigError(
                    f"policy.never_send names '{name}', which is neither a protection nor the name of a message. "
                    f"{did_you_mean(name.upper(), Protection)}"
                )
        for rule in ("minimum_shared_rows", "maximum_runs", "maximum_alignments", "predictions_per_day"):
            if (getattr(self, rule) or 0) < 0:
                raise ConfigError(f"policy.{rule} must not be negative.")


@described
@dataclass(frozen=True, kw_only=True)
class Policy(PolicyRules):
    """Rules checked before the first message and again at every send.

    The session's own messages (handshake, checkpoint agreement, failure, goodbye) are exempt from ``never_send``: they
    carry no content derived from a table.
    """

    file: str = "the policy given in Python"
    """Where the rules come from, for refusals."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each rule in the file, for refusals."""

    @property
    def rules(self) -> PolicyRules:
        """Return the rules by themselves, without where they come from."""
        return PolicyRules(**{one.name: getattr(self, one.name) for one in fields(PolicyRules)})

    @property
    def unsent_messages(self) -> tuple[str, ...]:
        """Return the single messages that must not leave."""
        return tuple(name.split()[-1] for name in self.never_send if name not in Protection.__members__)

    def check_run(self, party: str, method: str, partners: Iterable[str], sends: Iterable[Declaration]) -> None:
        """Refuse a run whose method, partners or declared messages this party does not allow."""
        if self.methods is not None and method not in self.methods:
            self._refuse("methods", party, f"the method '{method}' is not in its list", [*self.methods, method])
        for partner in partners:
            if self.partners is not None and partner not in self.partners:
                self._refuse(
                    "partners", party, f"the partner '{partner}' is not in its list", [*self.partners, partner]
                )
        for declaration in sends:
            self.check_send(party, declaration)

    def check_send(self, party: str, declaration: Declaration) -> None:
        """Refuse a message that must never leave this party, by its protection or by its name."""
        if not self.never_send:
            return
        if declaration.protection in self.never_send:
            self._refuse("never_send", party, f"the message {declaration.name} is {declaration.protection}")
        for name in (declaration.name, f"{declaration.protection} {declaration.name}"):
            if name in self.never_send:
                self._refuse("never_send", party, f"the message {name} is in its list")

    def check_shared_rows(self, party: str, count: int) -> None:
        """Refuse a run over too few shared rows."""
        if count < self.minimum_shared_rows:
            self._refuse("minimum_shared_rows", party, f"only {count} rows are shared")

    def check_table_sizes(self, party: str, partner: str, own: int, theirs: int) -> None:
        """Refuse to look for shared rows where there cannot be enough of them."""
        if min(own, theirs) < self.minimum_shared_rows:
            reason = f"only {min(own, theirs)} rows can be shared, as it brings {own} and '{partner}' {theirs}"
            self._refuse("minimum_shared_rows", party, reason)

    def check_counts_are_told(self, party: str) -> None:
        """Refuse an alignment in which this party does not learn how many rows are shared, if it must know."""
        if self.minimum_shared_rows:
            self._refuse("minimum_shared_rows", party, "in mode one_learns it is not told how many rows are shared")

    def check_earlier_alignments(self, party: str, partner: str, count: int) -> None:
        """Refuse to look for shared rows with a partner once more than the party allows."""
        if self.maximum_alignments is not None and count >= self.maximum_alignments:
            reason = f"{count} of at most {self.maximum_alignments} alignments with '{partner}' have been begun already"
            self._refuse("maximum_alignments", party, reason, count + 1)

    def check_earlier_runs(self, party: str, count: int) -> None:
        """Refuse one more run than the party allows."""
        if self.maximum_runs is not None and count >= self.maximum_runs:
            self._refuse("maximum_runs", party, f"{count} runs have been made already", count + 1)

    def check_predictions(self, party: str, partner: str, used: int, rows: int) -> None:
        """Refuse to help to score more rows for a partner than the party allows within 24 hours."""
        if self.predictions_per_day is not None and used + rows > self.predictions_per_day:
            reason = (
                f"it helps to score at most {self.predictions_per_day} rows for '{partner}' within 24 hours; {used} "
                f"were scored and {rows} more are asked for. Many answers give away how rows are scored"
            )
            self._refuse("predictions_per_day", party, reason)

    def check_role_without_rows(self, party: str, role: str, *, learns: bool, scores: bool) -> None:
        """Refuse a role that is not told how many rows there are, if a rule must be kept that counts them."""
        reason = f"as {role} it brings no rows and is not told whose are {{}}, so that it could not keep this rule"
        if learns and self.minimum_shared_rows:
            self._refuse("minimum_shared_rows", party, reason.format("shared"))
        if scores and self.predictions_per_day is not None:
            self._refuse("predictions_per_day", party, reason.format("scored"))

    def check_consent(self, party: str, is_given: bool) -> None:
        """Refuse to send anything that nobody has agreed to."""
        if self.consent == "ask" and not is_given:
            self._refuse("consent", party, "nobody has agreed to what would be sent")

    def _refuse(self, rule: str, party: str, reason: str, allowing: list[str] | int | None = None) -> None:
        """Say which rule refuses, and what would allow it; a threshold that protects rows is for people to choose."""
        line = f", line {self.lines[rule]}" if rule in self.lines else ""
        how = "" if allowing is None else f": write {rule} = {json.dumps(allowing)} in [policy]"
        raise PolicyRefused(
            f"'{party}' refuses this run by its rule policy.{rule} ({self.file}{line}): {reason}. "
            f"Change the run, or the rule if you are the one who decides it{how}."
        )
