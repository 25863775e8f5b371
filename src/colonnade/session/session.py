"""One party's side of one run."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.engine import INLINE, Engine
from colonnade.errors import CheckpointBroken, ConfigError
from colonnade.ledger import LedgerWriter
from colonnade.messages import ANYONE, Declaration, declaration_of
from colonnade.session.channel import Channel
from colonnade.session.checkpoints import CheckpointStore
from colonnade.session.files import write_whole
from colonnade.session.method import Finding, Method
from colonnade.session.metrics_log import MetricsLog
from colonnade.session.model_part import ModelPart
from colonnade.session.party import Participant
from colonnade.session.plan import RunPlan
from colonnade.session.scored_rows import ScoredRows
from colonnade.session.seeds import derive_seed
from colonnade.transport import Link

__all__ = ["Observer", "Progress", "Session"]

_SECRET_BYTES = 32
# How often an observer is told of progress; training must not wait for a terminal.
_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True)
class Progress:
    """How far one party has come."""

    party: str
    role: str
    stage: str
    step: int
    total: int | None
    latest: Mapping[str, Any]
    bytes_sent: int = 0
    bytes_received: int = 0
    passed: tuple[str, int] | None = None
    """The setting that counts passes of which one has just ended, and that pass's number."""


Observer = Callable[[Progress], None]


class Session:
    """Channels, ledger, seeds, metrics and checkpoints of one party in one run."""

    def __init__(
        self,
        party: Participant,
        method: Method,
        plan: RunPlan,
        links: Mapping[str, Link],
        *,
        messages: tuple[type, ...] = (),
        observer: Observer | None = None,
        resume: bool = True,
        engine: Engine = INLINE,
    ) -> None:
        """Open ledger and metrics; ``messages`` are declared beside the method's own, such as those of alignment."""
        self.party, self.role, self.stage = party.name, plan.role_of(party.name), plan.stage
        self.method, self.plan, self.policy = method, plan, party.policy
        self.lead = method.lead_in(plan)
        """The role of the party that all others have a channel to."""
        self.declarations = (*map(declaration_of, messages), *method.declarations_in(plan))
        """What may cross in this run."""
        self.step = 0
        self.findings: list[Finding] = []
        """What is to be said of this party's own data beside what the method finds out."""
        self.engine = engine
        """Where this party's heavy work, such as encryption, runs."""
        self.resumed: ModelPart | None = None
        """The checkpoint to go on from, when the run was interrupted."""
        self.allows_resume = resume
        self.earlier_runs = party.earlier_runs
        self.ledger = LedgerWriter(party.folder / "ledger.jsonl" if party.folder else None)
        self.metrics = MetricsLog(party.folder / "metrics.jsonl" if party.folder else None)
        self.checkpoints = CheckpointStore(party.folder / "checkpoints" / plan.stage) if party.folder else None
        self.alignments = party.alignments or (party.folder / "alignment" if party.folder else None)
        """Where results of alignments are kept, to be used again."""
        self.history = party.alignments / "history.jsonl" if party.alignments else None
        """The file that says which alignments were begun, for the policy's limit."""
        self.scored_rows = ScoredRows(party.name, party.policy, party.queries)
        self.contributions = party.contributions
        """The file that says how many numbers about which rows were opened to whom."""
        self._secret_file = party.folder / "secret.key" if party.folder else None
        self._secret: bytes | None = None
        self._observer, self._told = observer, 0.0
        self._total: int | None = None
        self._latest: dict[str, Any] = {}
        digest = plan.digest()
        self._channels = {
            peer: Channel(
                link,
                party=self.party,
                role=self.role,
                peer=peer,
                peer_role=plan.role_of(peer),
                run=digest,
                declarations=self.declarations_with(peer),
                ledger=self.ledger,
                policy=self.policy,
                step=lambda: self.step,
                scored_rows=self.scored_rows,
            )
            for peer, link in links.items()
        }

    def declarations_with(self, peer: str) -> tuple[Declaration, ...]:
        """Return what may cross between this party and a peer: what finds shared rows only where both look for them."""
        if self.method.are_aligned(self.plan, self.party, peer):
            return self.declarations
        return tuple(one for one in self.declarations if one.sender != ANYONE)

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """Return the channels to all peers, in the agreed order of parties."""
        return tuple(self._channels[peer] for peer in self.plan.parties if peer in self._channels)

    def channels(self, role: str) -> tuple[Channel, ...]:
        """Return the channels to all parties that play a role, in the agreed order."""
        return tuple(channel for channel in self.all_channels if channel.peer_role == role)

    def channel(self, role: str) -> Channel:
        """Return the channel to the one party that plays a role."""
        found = self.channels(role)
        if len(found) != 1:
            raise ConfigError(f"'{self.party}' has {len(found)} channels to the role {role} where one was expected.")
        return found[0]

    def seed(self, purpose: str, counter: int = 0) -> int:
        """Return a seed all parties derive alike, such as for the order of batches."""
        return derive_seed(self.plan.seed, purpose, counter)

    def own_seed(self, purpose: str, counter: int = 0) -> int:
        """Return a seed that no other party uses, such as for initial weights.

        It is not secret: who knows the run's seed can derive it.
        """
        return derive_seed(self.plan.seed, f"{purpose}/{self.party}", counter)

    def secret(self, purpose: str) -> bytes:
        """Return 32 bytes that only this party knows, the same whenever this run is taken up again.

        They are for noise that must not be drawn twice. They come from the operating system by way of a file in the run
        folder, which never leaves it; without a folder they last as long as the session. Another run, stage or purpose
        has others.
        """
        if self._secret is None:
            self._secret = self._durable_secret()
        about = f"colonnade secret/{self.plan.digest()}/{self.stage}/{self.party}/{purpose}"
        return hmac.digest(self._secret, about.encode(), hashlib.sha256)

    def expect_steps(self, total: int) -> None:
        """Say how many steps this stage may take, for progress displays."""
        self._total = total

    def next_step(self) -> None:
        """Go on to the next step."""
        self.step += 1
        if self._observer is not None and time.monotonic() - self._told > _PROGRESS_SECONDS:
            self._tell()

    def passes(self, setting: str, count: int, first: int = 0) -> Iterator[int]:
        """Go through the passes that a setting counts, and say where each is over."""
        for number in range(first, count):
            try:
                yield number
            finally:
                self.end_pass(setting, number + 1)

    def end_pass(self, setting: str, number: int) -> None:
        """Say that one of the passes that a setting counts is over: a rehearsal plays few of them, and multiplies."""
        if self._observer is not None:
            progress = self._progress(self.stage, self.step, self._total, self._latest)
            self._observer(replace(progress, passed=(setting, number)))

    def show(self, what: str, done: int, total: int) -> None:
        """Show progress of something that is not a step of the method, such as alignment."""
        if self._observer is not None and (done == total or time.monotonic() - self._told > _PROGRESS_SECONDS):
            self._told = time.monotonic()
            self._observer(self._progress(what, done, total, {}))

    def record(self, **values: float | int | str | bool) -> None:
        """Write numbers of this step into the metrics, and show them as progress."""
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        self._latest = plain
        self.metrics.record(self.stage, self.step, plain)
        if self._observer is not None:
            self._tell()

    def checkpoint(self, state: ModelPart) -> None:
        """Keep the state of this step. All parties call this at the same steps."""
        if self.checkpoints is None:
            return
        self.checkpoints.save(self.step, state)
        self.ledger.mark("checkpoint", step=self.step)

    def go_back_to(self, step: int | None) -> None:
        """Take up the run at a checkpoint, or at the beginning."""
        self.step = step or 0
        if self.checkpoints is not None:
            if step is not None:
                self.resumed = self.checkpoints.load(step)
            # Before anything is sent: from now on others may make new checkpoints of these steps.
            self.checkpoints.forget_after(-1 if step is None else step)
        self.metrics.rewind(self.stage, self.step if step is not None else -1)

    def _durable_secret(self) -> bytes:
        if self._secret_file is None:
            return secrets.token_bytes(_SECRET_BYTES)
        if not self._secret_file.exists() and self.resumed is not None:
            raise CheckpointBroken(
                f"{self._secret_file} is missing, and other noise would weaken what was sent before. "
                "Restore it, or begin the run anew."
            )
        if not self._secret_file.exists():
            # Before its first use: what was hidden by a lost secret could not be hidden in the same way again.
            write_whole(self._secret_file, secrets.token_bytes(_SECRET_BYTES))
        kept = self._secret_file.read_bytes()
        if len(kept) != _SECRET_BYTES:
            raise CheckpointBroken(f"{self._secret_file} was changed. Restore it, or begin the run anew.")
        return kept

    def _tell(self) -> None:
        self._told = time.monotonic()
        if self._observer is not None:
            self._observer(self._progress(self.stage, self.step, self._total, self._latest))

    def _progress(self, stage: str, step: int, total: int | None, latest: Mapping[str, Any]) -> Progress:
        sent = sum(channel.bytes_sent for channel in self.all_channels)
        received = sum(channel.bytes_received for channel in self.all_channels)
        return Progress(self.party, self.role, stage, step, total, latest, sent, received)
