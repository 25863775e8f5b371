"""Pairing by code: the two who know it pair, and nobody else learns or breaks anything."""

from __future__ import annotations

import asyncio
import datetime
import hmac
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from spake2 import SPAKE2_A, SPAKE2_B

from colonnade.errors import ColonnadeError, ConfigError, HandshakeRefused, PeerLost
from colonnade.launch import pairing
from colonnade.launch.pairing import Card, invite, join, make_code, open_listener, read_code
from colonnade.transport.grpc import make_identity

pytestmark = pytest.mark.timeout(60)

CODE, WRONG = "123-456-789", "123-456-780"
BANK, SHOP, MALLORY = (make_identity(name) for name in ("bank", "shop", "mallory"))
YEAR_2000 = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
EXPIRED = make_identity("shop", days=1, starts=YEAR_2000)
BANK_CARD = Card("bank", BANK.certificate, ":7443")
SHOP_CARD = Card("shop", SHOP.certificate, "shop.example:7444")


def nothing(_: Card) -> None:
    """Accept every card."""


class Waiting:
    """An invitation in a thread of its own."""

    def __init__(self, accept: Callable[[Card], None] = nothing, code: str = CODE) -> None:
        self.listener = open_listener("127.0.0.1:0")
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.accepted: list[Card] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(accept, code), daemon=True)
        self._thread.start()

    def _run(self, accept: Callable[[Card], None], code: str) -> None:
        try:
            self.accepted.append(invite(self.listener, code, BANK_CARD, accept))
        except Exception as error:
            self.error = error

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


def send(line: socket.socket, content: bytes) -> None:
    line.sendall(struct.pack(">H", len(content)) + content)


def receive(line: socket.socket) -> bytes:
    return _exactly(line, struct.unpack(">H", _exactly(line, 2))[0])


def _exactly(line: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = line.recv(count - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content


def is_closed(line: socket.socket, seconds: float = 15) -> bool:
    """Wait until the other side hangs up; tell whether it did so without another byte."""
    line.settimeout(seconds)
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def finish(waiting: Waiting) -> None:
    """The invitation is still good: the real partner pairs."""
    assert waiting.is_open
    assert join(waiting.address, CODE, SHOP_CARD, nothing).name == "bank"
    waiting.end()
    assert [card.name for card in waiting.accepted] == ["shop"]


# The two who know the code


def test_both_get_each_others_certificate_and_address() -> None:
    waiting = Waiting()
    seen: list[Card] = []
    card = join(waiting.address, CODE, SHOP_CARD, seen.append)
    waiting.end()
    assert card == Card("bank", BANK.certificate, "127.0.0.1:7443") == seen[0]
    assert waiting.accepted == [SHOP_CARD]
    assert waiting.error is None


def test_a_party_that_only_dials_gives_no_address_and_a_port_alone_takes_the_callers_host() -> None:
    for given, learned in (("", ""), (":7444", "127.0.0.1:7444")):
        waiting = Waiting()
        join(waiting.address, CODE, Card("shop", SHOP.certificate, given), nothing)
        waiting.end()
        assert waiting.accepted[0].address == learned


def test_codes_are_fresh_and_read_however_they_are_typed() -> None:
    codes = {make_code() for _ in range(200)}
    assert len(codes) == 200
    assert all(re.fullmatch(r"\d{3}-\d{3}-\d{3}", code) for code in codes)
    for text in ("123456789", "123 456 789", " 123-456-789 ", "12-34-56-789"):
        assert read_code(text) == CODE
    for text in ("", "12345678", "1234567890", "abc-def-ghi", "１２３４５６７８９", "-23456789"):
        with pytest.raises(ConfigError, match="nine digits") as refused:
            read_code(text)
        assert not text or text not in str(refused.value)


def test_nothing_readable_crosses_but_the_names() -> None:
    waiting = Waiting()
    with relay(waiting.port) as (port, crossed):
        join(f"127.0.0.1:{port}", CODE, SHOP_CARD, nothing)
        waiting.end()
    content = bytes(crossed)
    assert b"bank" in content
    assert b"shop" in content
    for secret in (b"123456789", CODE.encode(), b"shop.example", b"colonnade.invalid"):
        assert secret not in content


# Wrong codes


def test_a_wrong_code_ends_the_invitation_on_both_sides() -> None:
    accepted: list[Card] = []
    waiting = Waiting(accepted.append)
    with pytest.raises(HandshakeRefused, match=r"did not accept the code.*new invitation") as refused:
        join(waiting.address, WRONG, SHOP_CARD, lambda _: pytest.fail("a card came through"))
    waiting.end()
    assert isinstance(waiting.error, HandshakeRefused)
    assert "wrong code was tried" in str(waiting.error)
    assert "Make a new invitation" in str(waiting.error)
    assert accepted == []
    for error in (refused.value, waiting.error):
        assert not re.search(r"\d{3}", str(error)), "no code in an error"


def test_the_right_code_comes_too_late_after_a_wrong_one() -> None:
    waiting = Waiting()
    with pytest.raises(HandshakeRefused):
        join(waiting.address, WRONG, SHOP_CARD, nothing)
    waiting.end()
    with pytest.raises(PeerLost, match="Nobody answers"):
        join(waiting.address, CODE, SHOP_CARD, nothing)


def test_a_code_works_once() -> None:
    waiting = Waiting()
    join(waiting.address, CODE, SHOP_CARD, nothing)
    waiting.end()
    with pytest.raises(PeerLost, match="an invitation ends with the first code"):
        join(waiting.address, CODE, SHOP_CARD, nothing)


def test_connections_opened_before_the_guess_get_no_guess_of_their_own() -> None:
    waiting = Waiting()
    lines = [waiting.dial() for _ in range(4)]
    answers = []
    for line in lines:
        send(line, pairing._hello("mallory"))
        answers.append(receive(line))
    for line in lines:
        with suppress(OSError):
            pake = SPAKE2_B(b"000000000", idA=b"bank", idB=b"mallory")
            send(line, pake.start() + bytes(32))
    waiting.end()
    assert isinstance(waiting.error, HandshakeRefused)
    assert all(is_closed(line) for line in lines), "no confirmation was sent to anyone"
    for line in lines:
        line.close()


def test_a_guess_on_a_second_connection_is_not_even_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare, close = hmac.compare_digest, pairing._Line.close

    async def close_late(line: Any) -> None:
        await asyncio.sleep(1)  # so that all guesses are there while the first is still being refused
        await close(line)

    monkeypatch.setattr(pairing.hmac, "compare_digest", lambda *pair: compared.append(1) or compare(*pair))
    monkeypatch.setattr(pairing._Line, "close", close_late)
    waiting = Waiting()
    lines = [waiting.dial() for _ in range(8)]
    for line in lines:
        send(line, pairing._hello("mallory"))
        receive(line)
    for line in lines:
        send(line, SPAKE2_B(b"000000000", idA=b"bank", idB=b"mallory").start() + bytes(32))
    waiting.end()
    assert compared == [1]
    for line in lines:
        line.close()


# Someone in between


@contextmanager
def relay(
    port: int, change: Callable[[bytes, bool], bytes] = lambda block, _: block
) -> Iterator[tuple[int, bytearray]]:
    """Pass blocks on between a joiner and an inviter, after changing them."""
    listener = socket.create_server(("127.0.0.1", 0))
    crossed = bytearray()

    def pump(source: socket.socket, target: socket.socket, from_joiner: bool) -> None:
        with suppress(OSError, EOFError):
            while True:
                block = change(receive(source), from_joiner)
                crossed.extend(block)
                send(target, block)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            joiner, _ = listener.accept()
            inviter = socket.create_connection(("127.0.0.1", port), timeout=20)
            back = threading.Thread(target=pump, args=(inviter, joiner, False), daemon=True)
            back.start()
            pump(joiner, inviter, True)
            back.join(20)
            joiner.close()
            inviter.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], crossed
    finally:
        listener.close()
        thread.join(20)


def test_a_relay_that_changes_nothing_gains_nothing() -> None:
    waiting = Waiting()
    with relay(waiting.port) as (port, _):
        assert join(f"127.0.0.1:{port}", CODE, SHOP_CARD, nothing).certificate == BANK.certificate
        waiting.end()
    assert waiting.accepted[0].certificate == SHOP.certificate


@pytest.mark.parametrize("block", range(7))
def test_a_relay_that_changes_any_block_ends_the_pairing(block: int) -> None:
    count = 0

    def change(content: bytes, _: bool) -> bytes:
        nonlocal count
        count += 1
        # A letter of a name in the greetings; then the confirmations, and the seals of the cards and the last word.
        place = len(pairing._HEADING) + 1 if block < 2 else len(content) - 1
        flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        return flipped if count == block + 1 else content

    waiting = Waiting()
    with relay(waiting.port, change) as (port, _), pytest.raises(ColonnadeError):
        join(f"127.0.0.1:{port}", CODE, SHOP_CARD, nothing)
    waiting.end()
    if block < 6:
        assert isinstance(waiting.error, ColonnadeError)
        assert waiting.accepted == []
    else:
        # Only the word that the inviter has pinned was lost: it has, and what it pinned is right.
        assert waiting.accepted == [SHOP_CARD]


class Between:
    """Someone who does not know the code and plays inviter to the joiner and joiner to the inviter."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._target = port
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with suppress(OSError, EOFError), self.listener.accept()[0] as joiner:
            hello = receive(joiner)
            with socket.create_connection(("127.0.0.1", self._target), timeout=20) as inviter:
                send(inviter, hello)
                theirs = receive(inviter)
                mine = SPAKE2_A(b"000000000", idA=b"bank", idB=b"shop")
                send(joiner, pairing._hello("bank", mine.start()))
                guess = receive(joiner)
                keys = pairing._Keys(mine.finish(guess[:33]), hello, theirs, guess[:33])
                other = SPAKE2_B(b"000000000", idA=b"bank", idB=b"shop")
                message = other.start()
                other_keys = pairing._Keys(other.finish(theirs[-33:]), hello, theirs, message)
                send(inviter, message + other_keys.confirmation(by_inviter=False))
                send(joiner, keys.confirmation(by_inviter=True))
                send(joiner, keys.inviter.seal(pairing._write_card(Card("bank", MALLORY.certificate))))
                receive(inviter)
        self.listener.close()


def test_someone_between_who_does_not_know_the_code_gets_neither_side() -> None:
    waiting = Waiting(lambda _: pytest.fail("a card was accepted"))
    between = Between(waiting.port)
    with pytest.raises(HandshakeRefused, match="someone stands between"):
        join(f"127.0.0.1:{between.port}", CODE, SHOP_CARD, lambda _: pytest.fail("a card was accepted"))
    waiting.end()
    between.thread.join(20)
    assert isinstance(waiting.error, HandshakeRefused)
    assert waiting.accepted == []


def test_names_are_bound_into_the_key() -> None:
    """Even someone who knows the code cannot make the two disagree on who they are."""

    def rename(content: bytes, from_joiner: bool) -> bytes:
        return content.replace(b"\x04shop", b"\x04shap") if from_joiner else content

    waiting = Waiting(lambda _: pytest.fail("a card was accepted"))
    with relay(waiting.port, rename) as (port, _), pytest.raises(HandshakeRefused):
        join(f"127.0.0.1:{port}", CODE, SHOP_CARD, nothing)
    waiting.end()
    assert isinstance(waiting.error, HandshakeRefused)


@pytest.mark.parametrize("side", [b"A", b"B"], ids=["as it is", "with the other side's mark"])
def test_the_inviters_own_message_sent_back_is_refused(side: bytes) -> None:
    waiting = Waiting()
    with waiting.dial() as line:
        send(line, pairing._hello("mallory"))
        answer = receive(line)
        send(line, side + answer[-32:] + bytes(32))
        assert is_closed(line)
    finish(waiting)


def test_a_confirmation_sent_back_is_refused() -> None:
    keys = pairing._Keys(bytes(32), b"a", b"b", b"c")
    assert keys.confirmation(by_inviter=True) != keys.confirmation(by_inviter=False)
    sealed = keys.inviter.seal(b"card")
    with pytest.raises(ColonnadeError):
        keys.joiner.open(sealed)
    with pytest.raises(ColonnadeError):
        keys.inviter.open(sealed)  # its count has moved on


def test_a_joiner_whose_message_comes_back_refuses_it() -> None:
    """An inviter who only echoes: the joiner never sees its own SPAKE2 message as the other's."""

    def echo(line: socket.socket) -> None:
        receive(line)
        send(line, pairing._hello("bank", b"B" + SPAKE2_B(b"x").start()[1:]))
        receive(line)

    with pytest.raises(PeerLost, match="no invitation"), answering(echo) as address:
        join(address, CODE, SHOP_CARD, nothing)


# Cards that lie: the code is right, the rest must still be checked


def guess_rightly(line: socket.socket) -> pairing._Keys:
    """Say hello and send the right guess, as the partner does."""
    hello = pairing._hello("shop")
    send(line, hello)
    answer = receive(line)
    pake = SPAKE2_B(b"123456789", idA=b"bank", idB=b"shop")
    message = pake.start()
    keys = pairing._Keys(pake.finish(answer[-33:]), hello, answer, message)
    send(line, message + keys.confirmation(by_inviter=False))
    return keys


def knowing_the_code(waiting: Waiting, card: Card) -> None:
    """A partner who knows the code and sends whatever card it likes."""
    with waiting.dial() as line:
        keys = guess_rightly(line)
        assert receive(line) == keys.confirmation(by_inviter=True)
        assert keys.inviter.open(receive(line))
        send(line, keys.joiner.seal(pairing._write_card(card)))
        assert is_closed(line)


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (Card("shop", MALLORY.certificate), "another's certificate"),
        (Card("shop", SHOP.certificate, 'x"\n[policy]\n:1'), "cannot be read"),
        (Card("shop", SHOP.certificate, "shop.example"), "cannot be read"),
        (Card("shop", EXPIRED.certificate), "expired"),
    ],
    ids=["another's certificate", "an address with quotation marks", "no port", "expired"],
)
def test_a_card_that_lies_is_refused_though_the_code_was_right(card: Card, says: str) -> None:
    waiting = Waiting(lambda _: pytest.fail("the card was accepted"))
    knowing_the_code(waiting, card)
    waiting.end()
    assert says in str(waiting.error)


def test_both_are_told_when_the_inviter_cannot_pin() -> None:
    def refuse(_: Card) -> None:
        raise ConfigError("'shop' is paired with another certificate.")

    waiting = Waiting(refuse)
    with pytest.raises(HandshakeRefused, match="'bank' did not accept our certificate"):
        join(waiting.address, CODE, SHOP_CARD, nothing)
    waiting.end()
    assert "another certificate" in str(waiting.error)


def test_both_are_told_when_the_joiner_cannot_pin() -> None:
    def refuse(_: Card) -> None:
        raise ConfigError("'bank' is paired with another certificate.")

    waiting = Waiting(lambda _: pytest.fail("half a pairing was pinned"))
    with pytest.raises(ConfigError, match="another certificate"):
        join(waiting.address, CODE, SHOP_CARD, refuse)
    waiting.end()
    assert isinstance(waiting.error, PeerLost)


def test_two_of_one_name_are_told_and_the_code_stays_good() -> None:
    waiting = Waiting()
    with pytest.raises(ConfigError, match="as we are"):
        join(waiting.address, CODE, Card("bank", make_identity("bank").certificate), nothing)
    finish(waiting)


# Strangers


GARBAGE = {
    "nothing": b"",
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: bank.example\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "zeros": bytes(5000),
    "too long a block": struct.pack(">H", 65535) + bytes(3000),
    "an empty block": struct.pack(">H", 0),
    "another version": struct.pack(">H", 25) + b"colonnade pairing 9\n\x04shop",
    "a name that lies about its length": struct.pack(">H", 25) + b"colonnade pairing 1\n\xffshop",
    "a name that cannot be one": struct.pack(">H", 26) + b"colonnade pairing 1\n\x05../ab",
    "half a block": struct.pack(">H", 25) + b"colonnade",
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_not_answered_and_costs_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_SECONDS", 1.0)
    waiting = Waiting()
    with waiting.dial() as line:
        line.sendall(GARBAGE[case])
        assert is_closed(line)
    monkeypatch.undo()
    finish(waiting)


@pytest.mark.parametrize(
    "guess",
    [b"", b"B", bytes(65), b"B" + bytes(64), b"B" + b"\xff" * 64, b"B\x01" + bytes(63), b"S" + bytes(64), bytes(66)],
    ids=["empty", "short", "zeros", "zero point", "no point", "neutral point", "wrong side", "long"],
)
def test_a_message_that_is_no_guess_does_not_cost_the_code(guess: bytes) -> None:
    waiting = Waiting()
    with waiting.dial() as line:
        send(line, pairing._hello("mallory"))
        receive(line)
        send(line, guess)
        assert is_closed(line)
    finish(waiting)


def test_a_block_too_long_for_its_step_is_not_waited_for() -> None:
    waiting = Waiting()
    with waiting.dial() as line:
        line.sendall(struct.pack(">H", pairing._MOST_HELLO + 1))
        assert is_closed(line, 4)
    with waiting.dial() as line:
        send(line, pairing._hello("mallory"))
        receive(line)
        line.sendall(struct.pack(">H", 66))
        assert is_closed(line, 4)
    finish(waiting)


def test_silent_and_slow_strangers_do_not_keep_the_partner_waiting() -> None:
    waiting = Waiting()
    lines = [waiting.dial() for _ in range(40)]
    for line in lines[::2]:
        line.sendall(b"\0")
    finish(waiting)
    for line in lines:
        line.close()


def test_only_so_many_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "most_unproved", lambda: 16)
    waiting = Waiting()
    lines = [waiting.dial() for _ in range(21)]
    closed = [line for line in lines if hangs_up(line)]
    assert len(closed) == 9, "the seventeenth leaves eight, drawn by lot, and four came after it"
    finish(waiting)
    for line in lines:
        line.close()


def test_silent_callers_do_not_push_out_one_that_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "most_unproved", lambda: 8)
    waiting = Waiting()
    with waiting.dial() as line:
        send(line, pairing._hello("shop"))
        receive(line)
        strangers = [waiting.dial() for _ in range(100)]
        assert sum(hangs_up(stranger) for stranger in strangers) > 90
        assert not hangs_up(line)
    finish(waiting)
    for stranger in strangers:
        stranger.close()


def test_callers_that_are_gone_at_once_are_not_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a connection that was reset while it waited to be accepted nobody can say where it came from."""
    monkeypatch.setattr(asyncio.StreamWriter, "get_extra_info", lambda *_: None)
    waiting = Waiting()
    for _ in range(20):
        with waiting.dial() as line:
            assert hangs_up(line)
    monkeypatch.undo()
    finish(waiting)
    assert caplog.text == ""


def hangs_up(line: socket.socket) -> bool:
    """Tell whether the other side has ended this connection, or does so within a moment."""
    try:
        return is_closed(line, 0.2)
    except TimeoutError:
        return False


@pytest.mark.parametrize("times", [1, pairing._TRIES - 1, pairing._TRIES])
def test_a_joiner_that_is_hung_up_on_before_its_guess_dials_again(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(pairing, "_RETRY_SECONDS", 0.01)
    begin, left = pairing._Invitation._begin, [times]

    def hang_up(invitation: Any, reader: Any, writer: Any) -> None:
        left[0] -= 1
        writer.transport.abort() if left[0] >= 0 else begin(invitation, reader, writer)

    monkeypatch.setattr(pairing._Invitation, "_begin", hang_up)
    waiting = Waiting()
    if times == pairing._TRIES:
        with pytest.raises(PeerLost, match="no invitation"):
            join(waiting.address, CODE, SHOP_CARD, nothing)
    finish(waiting)


def test_a_crowd_does_not_push_out_a_partner_whose_code_was_right() -> None:
    waiting = Waiting()
    with waiting.dial() as line:
        keys = guess_rightly(line)
        receive(line)
        receive(line)
        for _ in range(20):
            with waiting.dial() as stranger:
                assert is_closed(stranger, 4)
        send(line, keys.joiner.seal(pairing._write_card(SHOP_CARD)))
        waiting.end()
    assert waiting.accepted == [SHOP_CARD]


def test_strangers_that_speak_after_the_guess_do_not_push_out_the_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "most_unproved", lambda: 8)
    # The lot falls on those who were answered first: the partner is the second of them, and five of nine would go.
    monkeypatch.setattr(pairing, "surplus", lambda callers, most: list(callers)[:-most])
    waiting = Waiting()
    with ExitStack() as held:
        first = held.enter_context(waiting.dial())
        send(first, pairing._hello("mallory"))
        receive(first)
        silent = [held.enter_context(waiting.dial()) for _ in range(7)]
        line = held.enter_context(waiting.dial())
        keys = guess_rightly(line)
        receive(line)
        receive(line)
        for stranger in silent:
            send(stranger, pairing._hello("mallory"))
            receive(stranger)
        assert not hangs_up(line)
        send(line, keys.joiner.seal(pairing._write_card(SHOP_CARD)))
        waiting.end()
    assert waiting.accepted == [SHOP_CARD]


def cancel(_: Card) -> None:
    """End the attempt that asks, as soon as it waits for something."""
    attempt = asyncio.current_task()
    assert attempt is not None
    attempt.cancel()


def test_an_attempt_that_is_cancelled_after_its_guess_ends_the_invitation(monkeypatch: pytest.MonkeyPatch) -> None:
    write = pairing._write_card
    monkeypatch.setattr(pairing, "_write_card", lambda card: cancel(card) or write(card))
    waiting = Waiting(lambda _: pytest.fail("nothing came"))
    with waiting.dial() as line:
        guess_rightly(line)
        waiting.end()
    assert isinstance(waiting.error, PeerLost)
    assert "The code was right" in str(waiting.error)


def test_an_attempt_that_is_cancelled_after_it_has_pinned_is_a_pairing() -> None:
    waiting = Waiting(cancel)
    assert join(waiting.address, CODE, SHOP_CARD, nothing).name == "bank"
    waiting.end()
    assert waiting.accepted == [SHOP_CARD]


def test_a_stranger_that_dribbles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_SECONDS", 1.0)
    waiting = Waiting()
    with waiting.dial() as line:
        hello = pairing._hello("mallory")
        cut_off = False
        for byte in struct.pack(">H", len(hello)) + hello:
            try:
                line.sendall(bytes([byte]))
            except OSError:
                cut_off = True
                break
            time.sleep(0.1)
        assert cut_off
    monkeypatch.undo()
    finish(waiting)


def test_a_partner_lost_after_the_right_code_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(lambda _: pytest.fail("nothing came"))
    with waiting.dial() as line:
        guess_rightly(line)
        receive(line)
    waiting.end()
    assert isinstance(waiting.error, PeerLost)
    assert "The code was right" in str(waiting.error)


# What the joiner may meet


@contextmanager
def answering(play: Callable[[socket.socket], Any]) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError, EOFError):
            line, _ = listener.accept()
            line.settimeout(20)
            with line:
                play(line)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(20)


@pytest.mark.parametrize(
    "play",
    [
        lambda line: None,
        lambda line: line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda line: line.sendall(b"\x15\x03\x01\x00\x02\x02\x50"),
        lambda line: line.sendall(struct.pack(">H", 65535) + bytes(70000)),
        lambda line: send(line, pairing._hello("../bank", bytes(33))),
        lambda line: line.recv(1000) and line.recv(1000),
    ],
    ids=["hangs up", "a web server", "a run's TLS", "oversize", "a bad name", "silent"],
)
def test_a_joiner_says_that_no_invitation_is_there(
    play: Callable[[socket.socket], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "_SECONDS", 1.5)
    with answering(play) as address, pytest.raises(PeerLost, match="no invitation to pair"):
        join(address, CODE, SHOP_CARD, lambda _: pytest.fail("a card came"))


def test_a_false_inviter_gets_no_card_and_one_guess() -> None:
    received: list[bytes] = []

    def play(line: socket.socket) -> None:
        hello = receive(line)
        mine = SPAKE2_A(b"000000000", idA=b"bank", idB=b"shop")
        answer = pairing._hello("bank", mine.start())
        send(line, answer)
        guess = receive(line)
        keys = pairing._Keys(mine.finish(guess[:33]), hello, answer, guess[:33])
        send(line, keys.confirmation(by_inviter=True))
        send(line, keys.inviter.seal(pairing._write_card(Card("bank", make_identity("bank").certificate))))
        received.append(receive(line))

    with answering(play) as address, pytest.raises(HandshakeRefused, match="did not accept the code"):
        join(address, CODE, SHOP_CARD, lambda _: pytest.fail("a false card was accepted"))
    assert received == []


def test_an_address_that_cannot_be_listened_on_is_told() -> None:
    with open_listener("127.0.0.1:0") as listener:
        port = listener.getsockname()[1]
        for address, says in (
            (f"127.0.0.1:{port}", "Cannot listen"),
            ("192.0.2.1:7443", "Cannot listen"),
            ("no-such-host.invalid:1", "no host"),
            ("7443", "HOST:PORT"),
        ):
            with pytest.raises(ConfigError, match=says):
                open_listener(address)


def test_a_full_disk_and_a_fault_of_our_own_do_not_look_like_a_lost_partner() -> None:
    for fault, kind, says in (
        (OSError(28, "No space left on device"), ConfigError, "the free space"),
        (OSError(24, "Too many open files"), ConfigError, "ulimit -n"),
        (ZeroDivisionError("unforeseen"), ZeroDivisionError, "unforeseen"),
    ):

        def fail(_: Card, fault: Exception = fault) -> None:
            raise fault

        waiting = Waiting(fail)
        with pytest.raises(ColonnadeError):
            join(waiting.address, CODE, SHOP_CARD, nothing)
        waiting.end()
        assert isinstance(waiting.error, kind)
        assert says in str(waiting.error)
