"""Several parties in one process, each with a session as far as exchanges need one, and what each received."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any, cast

from colonnade.engine import INLINE
from colonnade.ledger import LedgerWriter
from colonnade.messages import Template, resolve
from colonnade.session import Channel, Policy, RunPlan, Session
from colonnade.transport import MemoryHub


class Place:
    """One party's session, without the handshake and everything else that an exchange does not touch."""

    def __init__(self, party: str, plan: RunPlan, channels: list[Channel], ledger: LedgerWriter) -> None:
        self.party, self.plan, self.role = party, plan, plan.role_of(party)
        self.all_channels, self.ledger = tuple(channels), ledger
        self.engine, self.policy = INLINE, Policy()

    def channels(self, role: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.all_channels if channel.peer_role == role)

    def channel(self, role: str) -> Channel:
        (found,) = self.channels(role)
        return found


class Room:
    """Parties by role, a channel between every two, and everything that arrived."""

    def __init__(
        self,
        roles: Mapping[str, tuple[str, ...]],
        messages: tuple[type | Template, ...],
        name: str = "run",
        **config: Any,
    ) -> None:
        self.plan = RunPlan(name=name, method="sums", roles=roles, config=config)
        parties = self.plan.parties
        self.hub = MemoryHub(parties, silence_seconds=60)
        self.seen: dict[str, list[tuple[str, Any]]] = {party: [] for party in parties}
        ledgers = {party: LedgerWriter() for party in parties}
        made: dict[str, list[Channel]] = {party: [] for party in parties}
        for party, peer in permutations(parties, 2):
            channel = Channel(
                self.hub.link(party, peer),
                party=party,
                role=self.plan.role_of(party),
                peer=peer,
                peer_role=self.plan.role_of(peer),
                run=self.plan.digest(),
                declarations=resolve(messages, self.plan),
                ledger=ledgers[party],
                policy=Policy(),
                step=itertools.count(1).__next__,
            )
            channel.receive = self._keeping(party, peer, channel.receive)  # type: ignore[method-assign]
            made[party].append(channel)
        for channels in made.values():
            channels.sort(key=lambda channel: parties.index(channel.peer))
        self.places = {party: Place(party, self.plan, made[party], ledgers[party]) for party in parties}

    def session(self, party: str) -> Session:
        return cast(Session, self.places[party])

    def _keeping(self, party: str, peer: str, receive: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*arguments: Any, **options: Any) -> Any:
            message = receive(*arguments, **options)
            self.seen[party].append((peer, message))
            return message

        return kept

    def play(self, parts: Mapping[str, Callable[[Session], Any]]) -> dict[str, Any]:
        """Run all parties and return what each returns; raise the first error of any."""
        found: dict[str, Any] = {}
        errors: list[BaseException] = []

        def run(party: str) -> None:
            try:
                found[party] = parts[party](self.session(party))
            except BaseException as error:
                errors.append(error)
                self.hub.leave(party)

        threads = [threading.Thread(target=run, args=(party,)) for party in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        if errors:
            raise errors[0]
        return found
