"""Take part in a run from a party's own process, and come back to it as often as the others do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from colonnade.errors import PeerFailed, PeerLost
from colonnade.launch.party_folder import PartyEnd, PartyFolder
from colonnade.launch.take_part import Seat, Taken, peers_of, take_part
from colonnade.launch.watch import Watcher
from colonnade.ledger import LedgerWriter
from colonnade.session import Method, Observer, RunPlan
from colonnade.transport.grpc import Endpoint, GrpcLink

__all__ = ["finish_without_partners", "join"]

# A party that keeps its result waits this long for partners that may need it; after that, they have left too.
_FAREWELL_SECONDS = 30.0
_STATUS_SECONDS = 0.5
_PAUSE_SECONDS = 0.2
_LAST_WORDS_SECONDS = 1.0


def join(
    seat: Seat,
    method: Method,
    plan: RunPlan,
    config: Any,
    endpoint: Endpoint,
    *,
    watcher: Watcher,
    observer: Observer | None = None,
    compare: bool = False,
    comes_back: bool = True,
) -> Taken | None:
    """Take part in a run with partners in other processes.

    With ``comes_back``, a partner that is lost, killed or interrupted is waited for, and all go on from the highest
    common checkpoint. Return None if this party kept its result in an earlier attempt and its partners have left.
    """
    peers = peers_of(method, plan, seat.name)
    while True:
        links = {peer: endpoint.link(peer) for peer in peers}
        patience = _LAST_WORDS_SECONDS
        try:
            if not _wait_for_all(seat, links, endpoint, watcher):
                return None
            watcher.connected(links)
            taken = take_part(seat, method, plan, config, links, observer=observer, compare=compare)
            patience = float("inf")
            return taken
        except (PeerLost, PeerFailed) as error:
            if not comes_back or (isinstance(error, PeerFailed) and not error.returns):
                raise
            watcher.interrupted(error)
        finally:
            for link in links.values():
                # After a failure only last words are left to say, and one of the peers is probably dead.
                link.close(patience)
        time.sleep(_PAUSE_SECONDS)


def finish_without_partners(folder: PartyFolder, peers: Iterable[str]) -> PartyEnd:
    """Close the books of a party whose result is kept and whose partners left before they could confirm it."""
    with LedgerWriter(folder.ledger) as ledger:
        for peer in peers:
            ledger.mark("unconfirmed", peer=peer)
        ledger.mark("closed")
    return folder.load()


def _wait_for_all(seat: Seat, links: Mapping[str, GrpcLink], endpoint: Endpoint, watcher: Watcher) -> bool:
    """Wait until every partner answers; False if they need not and do not."""
    keeps_result = seat.folder is not None and seat.folder.keeps_result
    since = time.monotonic()
    while absent := [link for link in links.values() if not link.is_up]:
        for link in links.values():
            link.check_present()
        if keeps_result and time.monotonic() - since > _FAREWELL_SECONDS:
            return False
        watcher.connecting(links, endpoint.trouble)
        absent[0].wait_until_up(_STATUS_SECONDS)
    return True
