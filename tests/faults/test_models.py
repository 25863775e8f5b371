"""A whole training over a bad network ends in the same model as without one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.cases import CASES
from tests.faults.proxy import FaultProxy, through_proxies

from colonnade.testing import Case, train
from colonnade.testing.checks import is_same_model

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]


@pytest.fixture
def proxies() -> Iterator[list[FaultProxy]]:
    """Put a proxy in front of every door that is dialled."""
    with through_proxies() as made:
        yield made


def reset(proxy: FaultProxy, _: random.Random) -> None:
    proxy.reset()


def close(proxy: FaultProxy, _: random.Random) -> None:
    proxy.close_all()


def damage(proxy: FaultProxy, _: random.Random) -> None:
    proxy.damages = 1


def stall(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.is_stalled = dice.random() < 0.4


def shake(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.delay, proxy.jitter = dice.random() * 0.01, dice.random() * 0.02


def all_together(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.duplicates = dice.random() < 0.3
    # Otherwise it would last until the dice say "stall" again, often longer than a silent peer is waited for.
    proxy.is_stalled = False
    dice.choice((reset, close, damage, stall, shake))(proxy, dice)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("fault", [reset, close, damage, stall, shake, all_together])
def test_a_training_over_a_bad_network_ends_in_the_is_same_model(
    fault: Callable[[FaultProxy, random.Random], None], case: Case, proxies: list[FaultProxy]
) -> None:
    expected = train(case)
    dice, is_over, faults = random.Random(1), threading.Event(), 0

    def disturb() -> None:
        nonlocal faults
        # Soon, as some trainings take no longer; then seldom enough that a connection can be made in between.
        pause = 0.05
        while not is_over.wait(pause):
            for proxy in list(proxies):
                fault(proxy, dice)
                faults += 1
            pause = 0.5 + dice.random()

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    try:
        run = train(case, "grpc")
    finally:
        is_over.set()
        thread.join(5)
    assert faults
    run.verify()
    # With secret draws no two runs are the same; this one must still end, with ledgers that agree.
    assert is_same_model(case, expected, run) or case.draws_in_secret
