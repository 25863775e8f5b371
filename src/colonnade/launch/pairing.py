"""Pair two parties by a short one-time code: SPAKE2 between two running commands.

One party, the inviter, listens and shows a code. The other, the joiner, gets the code by telephone and dials. SPAKE2
turns the code into a strong key that only someone who knows the code can have; whoever does not know it gets one
guess, and that guess ends the invitation. Under the key both send their certificate and address, encrypted.

::

    joiner → inviter    name
    inviter → joiner    name, SPAKE2 message
    joiner → inviter    SPAKE2 message, confirmation: an HMAC under the new key. This is the guess
    inviter → joiner    confirmation
    inviter → joiner    sealed card
    joiner → inviter    sealed card
    inviter → joiner    sealed word that the card is pinned

The names are part of what SPAKE2 agrees on. The joiner confirms first: a stranger who dials learns nothing about the
code before it has committed itself to a guess, and one who goes away before that has cost nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import signal
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from spake2 import SPAKE2_A, SPAKE2_B
from spake2.spake2 import SPAKEError

from colonnade.errors import ColonnadeError, ConfigError, FrameRefused, HandshakeRefused, PeerLost, remedy
from colonnade.launch.identity import check_address, describe_certificate
from colonnade.session.plan import check_name
from colonnade.transport.grpc.callers import most_unproved, network_of, surplus
from colonnade.transport.grpc.certificates import check_certificate

__all__ = ["Card", "invite", "join", "make_code", "open_listener", "read_code"]

_HEADING = b"colonnade pairing 1\n"
_DIGITS = 9
_PAKE_BYTES = 33
_CONFIRMATION_BYTES = 32
_MOST_HELLO = len(_HEADING) + 1 + 64 + _PAKE_BYTES
_MOST_SEALED = 4096
_SECONDS = 10.0
"""How long one connection may take from beginning to end. Nobody types in between."""
_TRIES = 5
"""How often a joiner dials who hangs up before the code was tried: strangers may have taken its place."""
_RETRY_SECONDS = 0.2
_PINNED, _REFUSED = b"pinned", b"refused"


@dataclass(frozen=True)
class Card:
    """What a party hands to its partner."""

    name: str
    certificate: bytes
    address: str = ""
    """HOST:PORT; or :PORT when only the partner can tell which host that is; or nothing if this party only dials."""


def make_code() -> str:
    """Make a fresh one-time code, in groups that can be read out."""
    digits = f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}"
    return "-".join(digits[start : start + 3] for start in range(0, _DIGITS, 3))


def read_code(text: str) -> str:
    """Return a code as the other side wrote it, however it was typed.

    >>> read_code(" 123 456789 ")
    '123-456-789'
    """
    digits = text.replace("-", "").replace(" ", "")
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        # The text itself is a secret, even if it is mistyped.
        raise ConfigError("The code must have nine digits, such as 123-456-789. Type it as your partner reads it.")
    return "-".join(digits[start : start + 3] for start in range(0, _DIGITS, 3))


def open_listener(address: str) -> socket.socket:
    """Listen at HOST:PORT."""
    host, port = check_address(address, "The address to listen on", lowest=0)
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind)
    except OSError:
        raise ConfigError(f"There is no host '{host}' to listen on. Use 0.0.0.0, or this machine's address.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or "not possible"
        raise ConfigError(
            f"Cannot listen on {address} ({why}). Stop what uses it, perhaps a run, or choose another with --listen."
        ) from None
    return listener


def _run(work: Callable[[], Coroutine[Any, Any, Card]]) -> Card:
    runner = asyncio.Runner()
    try:
        with _no_interruption():
            # Ctrl-C in the middle of this would leave half a loop, whose end prints a traceback.
            runner.get_loop()
        return runner.run(work())
    finally:
        runner.close()


@contextmanager
def _no_interruption() -> Iterator[None]:
    """Put Ctrl-C off until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


# The inviter


def invite(listener: socket.socket, code: str, own: Card, accept: Callable[[Card], None]) -> Card:
    """Wait for a partner who knows the code, give its card to ``accept`` and return it.

    ``accept`` pins the partner, or raises. The code is good for one completed guess: after it, right or wrong, this
    returns or raises. The listener is closed at the end.
    """
    return _run(lambda: _Invitation(code, own, accept).wait(listener))


class _Invitation:
    """One code and the connections that try it."""

    def __init__(self, code: str, own: Card, accept: Callable[[Card], None]) -> None:
        self._code, self._own, self._accept = code, own, accept
        self._is_spent = False
        # With the network of each; those that have said nothing sensible do not compete with those that have.
        self._silent: dict[asyncio.Task[None], bytes] = {}
        self._answered: dict[asyncio.Task[None], bytes] = {}
        self._most = most_unproved()
        self._outcome: asyncio.Future[Card]

    async def wait(self, listener: socket.socket) -> Card:
        self._outcome = asyncio.get_running_loop().create_future()
        # No more are accepted at once than may stay, or a crowd could take all descriptors before any is sent away.
        server = await asyncio.start_server(self._begin, sock=listener, limit=_MOST_SEALED, backlog=self._most)
        listener.listen()  # more may wait in the system's own queue, where they cost nothing
        try:
            return await self._outcome
        finally:
            server.close()
            attempts = [*self._silent, *self._answered]
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_spent or not writer.get_extra_info("peername"):
            # Nobody else can pair any more; or the caller is gone by now.
            writer.transport.abort()
            return
        attempt = asyncio.get_running_loop().create_task(self._attempt(reader, writer))
        attempt.add_done_callback(lambda done: self._forget(done, writer))
        self._silent[attempt] = network_of(_host_of(writer))
        self._make_room(self._silent)

    def _make_room(self, attempts: dict[asyncio.Task[None], bytes]) -> None:
        # Once the code is spent nobody new is let in, and the one who is pairing must not give way to those who are.
        if len(attempts) > self._most and not self._is_spent:
            for unlucky in surplus(attempts, self._most // 2):
                del attempts[unlucky]
                unlucky.cancel()

    def _note_answer(self) -> None:
        attempt = asyncio.current_task()
        if attempt in self._silent:
            self._answered[attempt] = self._silent.pop(attempt)
            self._make_room(self._answered)

    def _forget(self, attempt: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._silent.pop(attempt, None)
        self._answered.pop(attempt, None)
        # One that was cancelled before its first step has not closed anything.
        writer.transport.abort()

    async def _attempt(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(reader, writer)
        outcome: Card | Exception | None = None
        try:
            async with asyncio.timeout(_SECONDS):
                outcome = await self._exchange(line)
        except asyncio.CancelledError:
            outcome = _lost_halfway() if line.has_guessed else None
            raise
        except Exception as error:
            # Before a guess this is a stranger, of whom nothing is said and to whom nothing is answered.
            outcome = error if line.has_guessed else None
        finally:
            try:
                await line.close()
            finally:
                # Even if this is cancelled: after a guess nobody else can end the invitation.
                self._end(outcome)

    def _end(self, outcome: Card | Exception | None) -> None:
        if outcome is None or self._outcome.done():
            return
        if isinstance(outcome, Card):
            self._outcome.set_result(outcome)
        elif isinstance(outcome, (OSError, EOFError)):  # a timeout is an OSError, too
            self._outcome.set_exception(_lost_halfway())
        else:
            self._outcome.set_exception(outcome)

    async def _exchange(self, line: _Line) -> Card | None:
        hello = await line.receive(_MOST_HELLO)
        peer, _ = _read_hello(hello, 0)
        self._note_answer()
        pake = SPAKE2_A(_password(self._code), idA=self._own.name.encode(), idB=peer.encode())
        answer = _hello(self._own.name, pake.start())
        await line.send(answer)
        guess = await line.receive(_PAKE_BYTES + _CONFIRMATION_BYTES)
        if self._is_spent:
            return None
        theirs, confirmation = guess[:_PAKE_BYTES], guess[_PAKE_BYTES:]
        keys = _Keys(_finish(pake, theirs), hello, answer, theirs)
        # Spent before it is looked at: there is no way to a second guess.
        self._is_spent = line.has_guessed = True
        if not hmac.compare_digest(confirmation, keys.confirmation(by_inviter=False)):
            raise HandshakeRefused(
                "A wrong code was tried, so this invitation is over and nothing was exchanged. If your partner did not "
                "mistype it, someone else is trying. Make a new invitation."
            )
        await line.send(keys.confirmation(by_inviter=True))
        await line.send(keys.inviter.seal(_write_card(self._own)))
        card = _read_card(keys.joiner.open(await line.receive(_MOST_SEALED)), peer, _host_of(line.writer))
        try:
            self._accept(card)
        except (ColonnadeError, OSError) as error:
            await line.send(keys.inviter.seal(_REFUSED))
            if isinstance(error, ColonnadeError):
                raise
            what_to_do = remedy(error, "Check the home's permissions and the free space")
            raise ConfigError(
                f"The certificate of '{peer}' cannot be written ({error.strerror}). {what_to_do}, then make a new "
                "invitation."
            ) from None
        await line.send(keys.inviter.seal(_PINNED))
        return card


# The joiner


def join(address: str, code: str, own: Card, check: Callable[[Card], None]) -> Card:
    """Dial the inviter, prove that we know the code, and return its card once it has pinned ours.

    ``check`` sees the inviter's card before ours is sent, and raises if it cannot be pinned.
    """
    return _run(lambda: _join(address, code, own, check))


async def _join(address: str, code: str, own: Card, check: Callable[[Card], None]) -> Card:
    host, port = check_address(address, "The address of the partner")
    tries_left = _TRIES
    while True:
        line = await _dial(address, host, port)
        tries_left -= 1
        try:
            async with asyncio.timeout(_SECONDS):
                return await _exchange_as_joiner(line, host, code, own, check)
        except (OSError, EOFError, TimeoutError, FrameRefused) as error:
            was_hung_up_on = isinstance(error, (ConnectionError, EOFError)) and not line.has_guessed
            if not (was_hung_up_on and tries_left):
                raise _why_it_ended(line, address) from None
        finally:
            await line.close()
        await asyncio.sleep(_RETRY_SECONDS)


async def _dial(address: str, host: str, port: int) -> _Line:
    try:
        async with asyncio.timeout(_SECONDS):
            return _Line(*await asyncio.open_connection(host, port, limit=_MOST_SEALED))
    except (OSError, TimeoutError):
        raise PeerLost(
            f"Nobody answers at {address}. Check the address and the firewall, and that 'colonnade pair --invite' is "
            "running there: an invitation ends with the first code that is tried."
        ) from None


def _why_it_ended(line: _Line, address: str) -> ColonnadeError:
    if not line.has_guessed:
        return PeerLost(f"What answers at {address} is no invitation to pair. Check the address with your partner.")
    if not line.is_confirmed:
        return _wrong_code()
    return _lost_halfway()


def _lost_halfway() -> PeerLost:
    return PeerLost(
        "The code was right, but the partner was lost before both had pinned. Pair again with a new invitation; "
        "pairing twice does no harm."
    )


def _wrong_code() -> HandshakeRefused:
    return HandshakeRefused(
        "The partner did not accept the code: it was mistyped or used before, or someone stands between you and them. "
        "Ask for a new invitation, and do not try this code again."
    )


async def _exchange_as_joiner(line: _Line, host: str, code: str, own: Card, check: Callable[[Card], None]) -> Card:
    hello = _hello(own.name)
    await line.send(hello)
    answer = await line.receive(_MOST_HELLO)
    peer, theirs = _read_hello(answer, _PAKE_BYTES)
    if peer == own.name:
        raise ConfigError(f"The partner is called '{peer}', as we are. One of the two must choose another name.")
    pake = SPAKE2_B(_password(code), idA=peer.encode(), idB=own.name.encode())
    message = pake.start()
    keys = _Keys(_finish(pake, theirs), hello, answer, message)
    line.has_guessed = True
    await line.send(message + keys.confirmation(by_inviter=False))
    if not hmac.compare_digest(await line.receive(_CONFIRMATION_BYTES), keys.confirmation(by_inviter=True)):
        raise _wrong_code()
    line.is_confirmed = True
    card = _read_card(keys.inviter.open(await line.receive(_MOST_SEALED)), peer, host)
    check(card)
    await line.send(keys.joiner.seal(_write_card(own)))
    if keys.inviter.open(await line.receive(_MOST_SEALED)) != _PINNED:
        raise HandshakeRefused(f"'{peer}' did not accept our certificate. Its own screen says why.")
    return card


# What crosses


class _Line:
    """One connection that carries short blocks, each behind its length (u16, big-endian)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.has_guessed = False
        self.is_confirmed = False

    async def send(self, content: bytes) -> None:
        self.writer.write(struct.pack(">H", len(content)) + content)
        await self.writer.drain()

    async def receive(self, most: int) -> bytes:
        (length,) = struct.unpack(">H", await self._reader.readexactly(2))
        if not 0 < length <= most:
            raise FrameRefused("A block of the pairing is longer than this step allows. Compare the versions of both.")
        return await self._reader.readexactly(length)

    async def close(self) -> None:
        self.writer.close()
        try:
            # A peer that does not read must not keep us.
            async with asyncio.timeout(1.0):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


class _Seal:
    """Encrypts one direction; every block has its number, so none can be repeated or moved."""

    def __init__(self, key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._count = 0

    def seal(self, content: bytes) -> bytes:
        return self._cipher.encrypt(self._nonce(), content, _HEADING)

    def open(self, content: bytes) -> bytes:
        try:
            return self._cipher.decrypt(self._nonce(), content, _HEADING)
        except InvalidTag:
            raise FrameRefused("A block of the pairing was changed on its way. Make a new invitation.") from None

    def _nonce(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(12, "big")


class _Keys:
    """What both derive from SPAKE2's key: a confirmation and a seal for each direction, all different.

    Because they differ, nothing that one side sent can be sent back to it. All depend on the whole exchange so far.
    """

    def __init__(self, shared: bytes, *crossed: bytes) -> None:
        self._transcript = hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in crossed)).digest()
        derive = HKDF(hashes.SHA256(), length=128, salt=self._transcript, info=_HEADING + b"keys")
        keys = derive.derive(shared)
        self._confirm_inviter, self._confirm_joiner = keys[:32], keys[32:64]
        self.inviter, self.joiner = _Seal(keys[64:96]), _Seal(keys[96:])

    def confirmation(self, *, by_inviter: bool) -> bytes:
        key = self._confirm_inviter if by_inviter else self._confirm_joiner
        return hmac.digest(key, self._transcript, "sha256")


def _password(code: str) -> bytes:
    return code.replace("-", "").encode()


def _finish(pake: Any, theirs: bytes) -> bytes:
    try:
        key: bytes = pake.finish(theirs)
    except (SPAKEError, ValueError, AssertionError):
        # Not a point of the group, or our own message sent back. The code has not come into it yet.
        raise FrameRefused("The partner sent no valid SPAKE2 message. Check the address with your partner.") from None
    return key


def _hello(name: str, message: bytes = b"") -> bytes:
    return _HEADING + bytes([len(name)]) + name.encode() + message


def _read_hello(content: bytes, message_bytes: int) -> tuple[str, bytes]:
    rest = content.removeprefix(_HEADING)
    if not content.startswith(_HEADING) or not rest or len(rest) != 1 + rest[0] + message_bytes:
        raise FrameRefused("The partner does not speak this version of pairing. Compare 'colonnade version' on both.")
    try:
        name = rest[1 : 1 + rest[0]].decode("ascii")
        check_name("party", name)
    except (UnicodeDecodeError, ConfigError):
        raise FrameRefused("The partner gave no valid name. Compare 'colonnade version' on both.") from None
    return name, rest[1 + rest[0] :]


def _write_card(card: Card) -> bytes:
    certificate = x509.load_pem_x509_certificate(card.certificate).public_bytes(serialization.Encoding.DER)
    address = card.address.encode()
    return struct.pack(">HH", len(certificate), len(address)) + certificate + address


def _read_card(content: bytes, name: str, host: str) -> Card:
    """Read a card of someone who knows the code; the rest of it is checked like a stranger's."""
    unreadable = HandshakeRefused("The partner's card cannot be read. Compare 'colonnade version' on both.")
    try:
        certificate_bytes, address_bytes = struct.unpack_from(">HH", content)
        # Refuses whatever is shorter or longer.
        der, ascii_bytes = struct.unpack(f">4x{certificate_bytes}s{address_bytes}s", content)
        parsed, address = x509.load_der_x509_certificate(der), ascii_bytes.decode("ascii")
    except (struct.error, ValueError):
        raise unreadable from None
    # Made anew from what was parsed, so that it holds this certificate and nothing beside it.
    certificate = parsed.public_bytes(serialization.Encoding.PEM)
    if describe_certificate(certificate).name != name:
        raise HandshakeRefused(f"The partner calls itself '{name}' but gave another's certificate. Nothing was pinned.")
    check_certificate(certificate, name)
    if address.startswith(":"):
        address = f"[{host}]{address}" if ":" in host else f"{host}{address}"
    try:
        if address:
            check_address(address, "The partner's address")
    except ConfigError:
        raise unreadable from None
    return Card(name, certificate, address)


def _host_of(writer: asyncio.StreamWriter) -> str:
    """Return where a connection comes from. It may be a router's address, so the user is told to look at it."""
    return str(writer.get_extra_info("peername")[0]).removeprefix("::ffff:").partition("%")[0]
