"""A comparison says what changed, and lets pass what differs from run to run or from machine to machine."""

from __future__ import annotations

import numpy as np

from tests.recorder.compare import differences
from tests.recorder.observe import described
from tests.recorder.variants import VARIANTS, Variant

EXACT, SHARED = (next(one for one in VARIANTS if bool(one.within) is shared) for shared in (False, True))
WEIGHTS = np.linspace(-1.0, 1.0, 40).reshape(8, 5)


def said(
    values: dict[str, np.ndarray], other: dict[str, np.ndarray], *, variant: Variant = EXACT, here: bool = True
) -> list[str]:
    one, two = (
        {
            "train": {
                "messages": {},
                "numbers": {name: described(value, variant, "train") for name, value in all_.items()},
            }
        }
        for all_ in (values, other)
    )
    return differences(one, two, within=variant.within, is_same_machine=here)


def crossed(*messages: str) -> dict[str, object]:
    return {"train": {"messages": {"bank-shop": list(messages)}, "numbers": {}}}


def test_one_bit_is_a_difference_on_the_same_machine_only() -> None:
    moved = {"w": np.nextafter(WEIGHTS, 2.0)}
    assert said({"w": WEIGHTS}, moved) == ["train: w is not the same bit for bit: it is 0.0e+00 away from what it was."]
    assert said({"w": WEIGHTS}, moved, here=False) == []
    assert len(said({"w": WEIGHTS}, {"w": WEIGHTS * 1.001}, here=False)) == 1


def test_shares_may_move_numbers_within_the_limit() -> None:
    assert said({"w": WEIGHTS}, {"w": WEIGHTS + 0.1 * SHARED.within}, variant=SHARED) == []
    assert len(said({"w": WEIGHTS}, {"w": WEIGHTS + 30 * SHARED.within}, variant=SHARED)) == 1


def test_another_name_type_or_shape_is_told() -> None:
    assert said({"w": WEIGHTS}, {"v": WEIGHTS}) == ["train: w is now called v."]
    assert said({"w": WEIGHTS}, {"v": WEIGHTS[:4]}) == ["train: w is gone.", "train: v is new."]
    assert said({"w": WEIGHTS}, {"w": WEIGHTS.astype(np.float32)}) == ["train: w was [8,5] and is float32[8,5]."]


def test_sizes_of_whole_numbers_may_vary_a_little_and_others_not() -> None:
    def told(one: str, other: str) -> list[str]:
        return differences(crossed(one), crossed(other), within=0.0, is_same_machine=True)

    assert told("> Share MASKED ~108", "> Share MASKED ~106") == []
    assert len(told("> Share MASKED ~108", "> Share MASKED ~120")) == 1
    assert len(told("> Codes PLAIN 224 values[16,3]", "> Codes PLAIN 223 values[16,3]")) == 1


def test_a_message_by_another_name_is_told_apart_from_another_message() -> None:
    codes, end = "> Codes PLAIN 224 values[16,3]", "< End PLAIN ~5"
    renamed = differences(
        crossed(codes, end), crossed("> Cut PLAIN 224 values[16,3]", end), within=0.0, is_same_machine=True
    )
    assert renamed == [f"train: bank-shop: the message '{codes}' is now '> Cut PLAIN 224 values[16,3]'."]
    (more,) = differences(crossed(codes, end), crossed(codes, codes, end), within=0.0, is_same_machine=True)
    assert f"message 2 of 2 was '{end}' and is '{codes}'" in more
    assert "> Codes PLAIN: 1 before, 2 now" in more
