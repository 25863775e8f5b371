"""The recorded line between two parties.

Everything that leaves a party passes `Channel.send`, and `Channel.send` writes it into the ledger first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from colonnade.errors import DeclarationError, FrameRefused, OutOfStep, PeerFailed, PeerLost, WrongContent
from colonnade.ledger import LedgerWriter
from colonnade.messages import (
    ANYONE,
    CONTEXT_BYTES,
    WIRE_VERSION,
    Declaration,
    declaration_of,
    decode_body,
    open_frame,
    seal,
)
from colonnade.session.control import CONTROL, Failed
from colonnade.session.openings import Openings
from colonnade.session.policy import Policy
from colonnade.session.scored_rows import ScoredRows
from colonnade.text import shown
from colonnade.transport import BodyDigest, Link

__all__ = ["Channel"]

M = TypeVar("M")

# Greetings carry the same context everywhere, so that parties that disagree can still read what they disagree on.
_GREETING = hashlib.sha256(b"colonnade greeting" + bytes([WIRE_VERSION])).digest()[:CONTEXT_BYTES]
_FAILED = declaration_of(Failed).schema
_CONTROL = frozenset(declaration_of(cls).schema for cls in CONTROL)


class Channel:
    """An ordered, blocking, two-way, recorded line to one named peer."""

    def __init__(
        self,
        link: Link,
        *,
        party: str,
        role: str,
        peer: str,
        peer_role: str,
        run: str,
        declarations: Iterable[Declaration],
        ledger: LedgerWriter,
        policy: Policy,
        step: Callable[[], int],
        scored_rows: ScoredRows | None = None,
    ) -> None:
        self.party, self.role, self.peer, self.peer_role = party, role, peer, peer_role
        self._link, self._ledger, self._policy, self._step, self._run = link, ledger, policy, step, run
        self._scored_rows = scored_rows or ScoredRows(party, policy)
        declared = [*map(declaration_of, CONTROL), *declarations]
        self._sends = {one.cls: one for one in declared if _fits(one, role, peer_role)}
        self._receives = {one.cls: one for one in declared if _fits(one, peer_role, role)}
        self._by_schema = {one.schema: one for one in self._receives.values()}
        self.dims: dict[str, Any] = {}
        """What rules of messages go by on this channel: announced by either side, or said by this party."""
        self.connections: list[str] = []
        self.openings = Openings(party, peer, step)
        """What this party decrypted for the peer."""
        self.bytes_sent = self.bytes_received = 0
        self._is_torn = False
        self._outgoing = self._incoming = _GREETING
        self._start_counting()

    def connect(self, own_nonce: bytes, peer_nonce: bytes) -> None:
        """Bind all following frames to this run, this pair of incarnations and their direction.

        A frame from another run, from before a restart, from another pair, or one of our own reflected to us carries
        another context and is refused.
        """
        self._outgoing = self._context(self.party, self.peer, own_nonce, peer_nonce)
        self._incoming = self._context(self.peer, self.party, peer_nonce, own_nonce)
        self._start_counting()
        self.connections += [self._outgoing.hex(), self._incoming.hex()]

    def send(self, message: Any) -> None:
        """Record a declared message in the ledger, then send it."""
        declaration = self._sends.get(type(message))
        if self._is_torn:
            raise PeerLost(f"The line to '{self.peer}' was interrupted in the middle of a message.")
        if declaration is None:
            raise DeclarationError(
                f"{self.role} '{self.party}' may not send {type(message).__name__} to {self.peer_role} '{self.peer}' "
                "in this run: it is declared between other roles, for other settings, or not at all."
            )
        if declaration.schema not in _CONTROL:
            self._policy.check_send(self.party, declaration)
        header, parts = seal(declaration, message, context=self._outgoing, sequence=self._sent_count, step=self._step())
        self._ledger.message("sent", self.peer, declaration, header, declaration.shapes(message))
        # Recorded as sent, so its number is used up even if it does not get through.
        self._sent_count += 1
        self.bytes_sent += header.body_bytes
        self.dims |= declaration.body.announced(message)
        self._sent_digest.update(header.payload)
        try:
            self._link.send(parts, header.payload)
        except PeerLost as lost:
            raise self._explain(lost) from None
        except BaseException:
            # Perhaps not under way at all, though its number is used up: anything after it would look out of order.
            self._is_torn = True
            raise

    def receive(self, message_class: type[M], **known: Any) -> M:
        """Wait for the peer's next message, which must be of this class and keep the rules of its fields.

        Keyword arguments are what these rules go by in this message alone, such as how many rows a batch has.

        Rows that it asks to score are counted, and refused where they are more than this party allows.
        """
        expected = self._receives.get(message_class)
        if expected is None:
            raise DeclarationError(
                f"{self.role} '{self.party}' expects {message_class.__name__} from {self.peer_role} '{self.peer}', "
                "which is not declared to cross between them in this run."
            )
        declaration, content = self._take(expected)
        if declaration is not expected:
            if isinstance(content, Failed):
                raise self._last_words(content)
            raise OutOfStep(
                f"{self.role} '{self.party}' expected {expected.name} from '{self.peer}' at step {self._step()} but "
                f"got {declaration.name}. The two parties may be running different versions; compare 'colonnade "
                "--version' on both."
            )
        self._check(expected, content, known)
        # Before the role function can answer.
        self._scored_rows.count(self.peer, expected.rows_asked(content))
        return cast(M, content)

    def transcript(self) -> tuple[bytes, bytes]:
        """Return digests of all payloads sent and received over this connection."""
        return self._sent_digest.digest(), self._received_digest.digest()

    def _take(self, expected: Declaration) -> tuple[Declaration, object]:
        # Made while the bytes arrive: afterwards the line would be idle meanwhile.
        digest = BodyDigest()
        frame = self._link.receive(digest)
        header, body = open_frame(frame, body_digest=digest.digest())
        where = f"{self.role} '{self.party}' at step {self._step()}"
        context, due = self._incoming, self._received_count
        if self.connections and due == 0 and header.schema == _FAILED and header.context == _GREETING:
            # The peer stopped before it had read our greeting, so it could not bind its last words to this encounter.
            context, due = _GREETING, 1
        if header.context != context:
            raise FrameRefused(
                f"{where} received a frame from '{self.peer}' that belongs to another run, connection or direction; it "
                "was refused. Restart the run at all parties."
            )
        if header.sequence != due:
            raise FrameRefused(
                f"{where} received frame {header.sequence} from '{self.peer}' where frame {due} was due: it was "
                "replayed, reordered or lost. Restart the run at all parties."
            )
        declaration = self._by_schema.get(header.schema)
        if declaration is None:
            raise OutOfStep(
                f"{where} expected {expected.name} from '{self.peer}' but got a message that {self.peer_role} may not "
                "send here. The two parties may be running different versions; compare 'colonnade --version' on both."
            )
        try:
            content = decode_body(declaration, body)
        except WrongContent as error:
            raise self._refused(declaration, error) from None
        self._received_count += 1
        self.bytes_received += header.body_bytes
        self._received_digest.update(header.payload)
        self._ledger.message("received", self.peer, declaration, header, declaration.shapes(content))
        return declaration, content

    def _check(self, declaration: Declaration, content: object, known: dict[str, Any]) -> None:
        try:
            self.dims |= declaration.body.check(content, {**self.dims, **known})
        except WrongContent as error:
            raise self._refused(declaration, error) from None

    def _refused(self, declaration: Declaration, error: WrongContent) -> WrongContent:
        where = f"{self.role} '{self.party}' at step {self._step()}"
        return WrongContent(f"{where} refused {declaration.name} from '{self.peer}'. {error}")

    def declaration(self, message_class: type) -> Declaration:
        """Return how a message crosses here, whoever sends it."""
        found = self._sends.get(message_class) or self._receives.get(message_class)
        return declaration_of(message_class) if found is None else found

    def _start_counting(self) -> None:
        self._sent_count = self._received_count = 0
        self._sent_digest, self._received_digest = hashlib.sha256(), hashlib.sha256()

    def _last_words(self, failed: Failed) -> PeerFailed:
        self._check(declaration_of(Failed), failed, {})
        return PeerFailed(shown(failed.party, 64), failed.step, shown(failed.cause), returns=failed.returns)

    def _explain(self, lost: PeerLost) -> Exception:
        """Prefer the peer's own last words over the bare fact that it left."""
        try:
            while True:
                _, content = self._take(declaration_of(Failed))
                if isinstance(content, Failed):
                    return self._last_words(content)
        except (PeerLost, FrameRefused, OutOfStep, WrongContent):
            return lost

    def _context(self, sender: str, receiver: str, sender_nonce: bytes, receiver_nonce: bytes) -> bytes:
        digest = hashlib.sha256()
        facts = (self._run.encode(), sender.encode(), receiver.encode(), sender_nonce, receiver_nonce)
        for fact in (b"colonnade", bytes([WIRE_VERSION]), *facts):
            digest.update(len(fact).to_bytes(4, "little") + fact)
        return digest.digest()[:CONTEXT_BYTES]


def _fits(declaration: Declaration, sender: str, receiver: str) -> bool:
    return declaration.sender in (sender, ANYONE) and declaration.receiver in (receiver, ANYONE)
