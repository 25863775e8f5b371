"""Two ledgers of one run must tell the same story, whoever rewrote one of them."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.errors import LedgerBroken, LedgersDisagree
from colonnade.ledger import Ledger, LedgerWriter, compare
from colonnade.session.control import Failed, Hello

GREETING = b"greeting".ljust(16)


def both_ways(first: Ledger, second: Ledger, match: str | None = None) -> None:
    for pair in ((first, second), (second, first)):
        with pytest.raises(LedgersDisagree, match=match):
            compare(*pair)


def is_message(entry: dict[str, Any], kind: str) -> bool:
    return entry["kind"] == kind and entry["message"] == "Numbers"


def test_honest_ledgers_agree(finished: Any) -> None:
    bank, shop = finished.ledgers()
    compare(bank, shop)
    compare(shop, bank)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("payload", "00" * 32),
        ("bytes", 1),
        ("message", "Other"),
        ("protection", "ENCRYPTED"),
        ("step", 99),
        ("sequence", 99),
        ("shapes", {"values": [1, 1]}),
        ("connection", "00" * 16),
    ],
)
@pytest.mark.parametrize("kind", ["sent", "received"])
def test_a_rewritten_fact_with_a_right_chain_is_found(
    finished: Any, rewritten: Any, name: str, value: Any, kind: str
) -> None:
    bank, shop = finished.ledgers()

    def edit(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        [entry for entry in entries if is_message(entry, kind)][2][name] = value
        return entries

    both_ways(rewritten(bank, edit), shop)
    both_ways(bank, rewritten(shop, edit))


def test_a_message_removed_from_either_side_is_found(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()
    for kind in ("sent", "received"):
        for place in range(4):

            def edit(entries: list[dict[str, Any]], kind: str = kind, place: int = place) -> list[dict[str, Any]]:
                entries.remove([entry for entry in entries if is_message(entry, kind)][place])
                return entries

            both_ways(rewritten(bank, edit), shop)


def test_the_last_received_message_missing_after_both_closed_is_found(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()

    def edit(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        entries.remove([entry for entry in entries if entry["kind"] == "received"][-1])
        return entries

    both_ways(rewritten(bank, edit), shop, "did not record receiving")


def test_a_message_added_to_one_side_is_found(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()
    for kind, match in (("sent", "did not record receiving"), ("received", "did not record sending")):

        def edit(entries: list[dict[str, Any]], kind: str = kind) -> list[dict[str, Any]]:
            last = [entry for entry in entries if entry["kind"] == kind][-1]
            entries.insert(-1, {**last, "sequence": last["sequence"] + 1})
            return entries

        both_ways(rewritten(bank, edit), shop, match)


def test_swapped_messages_are_found(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()

    def edit(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first, second, *_ = [index for index, entry in enumerate(entries) if is_message(entry, "received")]
        entries[first], entries[second] = entries[second], entries[first]
        return entries

    both_ways(rewritten(bank, edit), shop)


def test_a_closed_ledger_cannot_drop_its_tail_by_dropping_the_goodbye_too(finished: Any, rewritten: Any) -> None:
    """A receiver that hides what came last may not pass for one that crashed, because its ledger is closed."""
    bank, shop = finished.ledgers()

    def hide(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [entry for entry in entries if entry["kind"] != "disconnected"]
        for entry in [entry for entry in kept if entry["kind"] == "received"][-3:]:
            kept.remove(entry)
        return kept

    hidden = rewritten(bank, hide)
    hidden.verify()
    both_ways(hidden, shop, "did not record receiving")


def test_a_closed_ledger_cannot_drop_a_whole_connection(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()
    hidden = rewritten(
        bank, lambda entries: [e for e in entries if e["kind"] not in ("sent", "received", "disconnected")]
    )
    both_ways(hidden, shop)


def test_ledgers_of_different_runs_are_not_compared(books: Any) -> None:
    books.open()
    other = LedgerWriter()
    other.mark("opened", party="shop", digest="another")
    both_ways(books.ledgers()[0], other.read(), "different runs")


def test_one_partys_ledger_twice_is_refused(finished: Any) -> None:
    bank, _ = finished.ledgers()
    both_ways(bank, bank, "both ledgers of 'bank'")


def test_a_ledger_without_an_opening_mark_is_refused(finished: Any) -> None:
    bank, _ = finished.ledgers()
    for other in (Ledger(b"", "empty"), LedgerWriter().read()):
        with pytest.raises(LedgerBroken):
            compare(bank, other)


def test_a_broken_ledger_is_refused_before_it_is_compared(finished: Any) -> None:
    bank, shop = finished.ledgers()
    with pytest.raises(LedgerBroken, match="does not follow"):
        compare(bank, Ledger(shop._content.replace(b'"step":1', b'"step":2', 1), "edited"))


def test_after_a_crash_the_receiver_may_have_seen_less(books: Any) -> None:
    books.open()
    books.exchange(3)
    there = b"there 0".ljust(16)
    books.cross("bank", "shop", Failed("bank", 3, "x", False), context=there, arrives=False)
    books.cross("bank", "shop", Failed("bank", 3, "y", False), context=there, arrives=False)
    compare(*books.ledgers())
    books.open()
    books.exchange(3, incarnation=1)
    books.close(incarnation=1)
    bank, shop = books.ledgers()
    compare(bank, shop)
    bank.verify()
    shop.verify()


def test_after_a_crash_the_receiver_may_not_have_seen_other_or_more(books: Any, rewritten: Any) -> None:
    books.open()
    books.exchange(3)
    books.cross("bank", "shop", Failed("bank", 3, "x", False), context=b"there 0".ljust(16), arrives=False)
    bank, shop = books.ledgers()

    def forge(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = [entry for entry in entries if entry["kind"] == "received"][-1]
        return [*entries, {**last, "sequence": last["sequence"] + 1}]

    both_ways(bank, rewritten(shop, forge))


def test_a_greeting_nobody_heard_before_a_restart_is_no_disagreement(books: Any, rewritten: Any) -> None:
    """A peer whose policy refuses never reads our greeting; once the rule is changed both go on in the same ledgers."""
    hello = Hello("1", "bank", "r", "run", "train", (), b"", bytes(16))
    later = Hello("1", "bank", "r", "run", "train", (), b"", bytes([1]) * 16)
    books.open()
    books.cross("bank", "shop", hello, context=GREETING, arrives=False)
    books.counts.clear()
    books.cross("shop", "bank", Failed("shop", 0, "policy", False), context=GREETING)
    books.open()
    books.counts.clear()
    books.cross("bank", "shop", later, context=GREETING)
    books.cross("shop", "bank", later, context=GREETING)
    books.exchange(2)
    books.close()
    bank, shop = books.ledgers()
    compare(bank, shop)
    compare(shop, bank)

    def forge(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        next(one for one in entries if one["kind"] == "received" and one["message"] == "Hello")["payload"] = "00"
        return entries

    both_ways(bank, rewritten(shop, forge), "did not record sending")


def test_a_ledger_cut_back_to_an_earlier_closing_is_found(finished: Any) -> None:
    """A run that was closed but lost its result is taken up again, so one ledger may hold two closings.

    Cut back to the first, it is a sound ledger by itself; only the peer's ledger shows that more happened.
    """
    finished.open()
    finished.exchange(1, incarnation=1)
    finished.close(incarnation=1)
    bank, shop = finished.ledgers()
    compare(bank, shop)
    lines = bank._content.splitlines(keepends=True)
    first = next(entry.index for entry in bank.entries if entry.kind == "closed")
    cut = Ledger(b"".join(lines[: first + 1]), "cut")
    cut.verify()
    both_ways(cut, shop, "did not record")


def test_a_receiver_that_saw_less_of_many_messages_is_compared_as_far_as_it_goes(books: Any, rewritten: Any) -> None:
    books.open()
    books.exchange(30)
    bank, shop = books.ledgers()

    def received(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [entry for entry in entries if entry["kind"] == "received"]

    def cut(entries: list[dict[str, Any]], seen: int) -> list[dict[str, Any]]:
        hidden = received(entries)[seen:]
        return [entry for entry in entries if entry not in hidden]

    def forge(entries: list[dict[str, Any]], seen: int) -> list[dict[str, Any]]:
        received(entries)[seen - 1]["payload"] = "00"
        return cut(entries, seen)

    for seen in (1, 17, 29):
        compare(bank, rewritten(shop, lambda entries, seen=seen: cut(entries, seen)))
        both_ways(bank, rewritten(shop, lambda entries, seen=seen: forge(entries, seen)), f"as message {seen - 1} of")


def test_a_peer_that_was_gone_excuses_missing_last_words_and_nothing_else(finished: Any, rewritten: Any) -> None:
    bank, shop = finished.ledgers()

    def without_last(count: int, message: str) -> Any:
        def edit(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for entry in [entry for entry in entries if entry["kind"] == "received"][-count:]:
                entries.remove(entry)
            entries.insert(-1, {"index": 0, "time": "", "kind": "unconfirmed", "peer": "shop"})
            return entries

        def renamed(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            [entry for entry in entries if entry["kind"] == "sent"][-1]["message"] = message
            return entries

        return rewritten(bank, edit), rewritten(shop, renamed)

    for message in ("Goodbye", "Finished", "Failed"):
        compare(*without_last(1, message))
    both_ways(*without_last(1, "Numbers"), "did not record receiving")
    both_ways(*without_last(2, "Goodbye"), "did not record receiving")
