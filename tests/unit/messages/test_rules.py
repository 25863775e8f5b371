"""Every rule accepts what keeps it, refuses what breaks it, and says how it can be broken."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest
import torch

from colonnade.crypto import CipherArray, PrivateKey, encrypt
from colonnade.errors import DeclarationError, WrongContent
from colonnade.messages import (
    ENCRYPTED,
    NOISED,
    PLAIN,
    Between,
    Binds,
    Carries,
    Dims,
    Distinct,
    Hex,
    Is,
    Length,
    OneOf,
    Rule,
    Sealed,
    Warns,
    between,
    by,
    declaration_of,
    message,
    must_warn,
    template_of,
    when,
)
from colonnade.session import RunPlan

KEPT: list[tuple[Rule, Any, dict[str, Any]]] = [
    (Dims("rows", 2), np.zeros((3, 2)), {"rows": 3}),
    (Dims("rows", "width"), torch.zeros(3, 4), {"rows": 3, "width": 4}),
    (Dims(None, 2), np.zeros((7, 2), np.float32), {}),
    (Dims("rows", kind="b"), np.ones(3, bool), {"rows": 3}),
    (Dims("rows", kind="u1"), np.ones(3, np.uint8), {"rows": 3}),
    (OneOf(given="held"), b"one", {"held": (b"one", b"two")}),
    (Dims("rows", "picture"), np.zeros((3, 1, 2)), {"rows": 3, "picture": (1, 2)}),
    (Dims("rows", "column"), np.zeros(3), {"rows": 3, "column": ()}),
    (Dims("rows", finite=False), np.full(3, np.nan), {"rows": 3}),
    (Between(1, 8), 8, {}),
    (Between(0, "rows"), (0, 3), {"rows": 3}),
    (Between(-1.0, 1.0), np.array([-1.0, 1.0]), {}),
    (Between(-1.0, 1.0), 0.5, {}),
    (Between(0, 9), np.array([0, 9]), {}),
    (Length(1, "most"), ("a", "b"), {"most": 2}),
    (Length(4, 4), b"four", {}),
    (Is("step"), 3, {"step": 3}),
    (OneOf("a", "b"), "a", {}),
    (OneOf(given="models"), ("x", "y"), {"models": ("x", "y")}),
    (Distinct(), ("a", "b"), {}),
    (Distinct(rising=True), np.array([1, 4, 9]), {}),
    (Hex(4), "00ff12ab", {}),
]


@pytest.mark.parametrize(
    ("rule", "value", "known"), KEPT, ids=lambda one: one.describe() if isinstance(one, Rule) else ""
)
def test_a_rule_accepts_what_keeps_it_and_refuses_every_way_to_break_it(
    rule: Rule, value: Any, known: dict[str, Any]
) -> None:
    assert rule.wrong(value, known) is None
    broken = list(rule.hostile(value, known))
    assert broken
    assert all(rule.wrong(one, known) is not None for one in broken)


@pytest.mark.parametrize("spoiled", [np.nan, np.inf, -np.inf])
def test_floats_are_numbers_unless_said_otherwise(spoiled: float) -> None:
    values = torch.tensor([1.0, spoiled])
    assert "not numbers" in str(Dims("rows").wrong(values, {"rows": 2}))
    assert Dims("rows", finite=False).wrong(values, {"rows": 2}) is None
    assert "where" in str(Between(0, 1).wrong(spoiled, {}))


def test_a_number_beyond_all_floats_is_refused_in_a_short_sentence() -> None:
    said = Between(1, 2**2048).wrong(2**12000, {})
    assert said is not None
    assert len(said) < 100


def test_nobody_looks_into_a_ciphertext_but_for_its_shape() -> None:
    sealed = encrypt(PrivateKey.generate("insecure_test"), np.full((2, 1), 9.0))
    assert Between(0, "most").wrong(sealed, {}) is None
    assert list(Between(0, "most").hostile(sealed, {})) == []
    assert Dims("rows", 1, kind="f").wrong(sealed, {"rows": 2}) is None
    assert Dims("rows", 1, kind="f").wrong(sealed, {"rows": 3}) is not None


def test_a_dimension_that_nobody_knows_is_a_fault_of_ours() -> None:
    with pytest.raises(DeclarationError, match="'width'"):
        Dims("rows", "width").wrong(np.zeros((2, 2)), {"rows": 2})


@message(sender="a", receiver="b", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class Width:
    """A width. Reveals: it."""

    width: Annotated[int, Between(1, 8), Binds("width")]
    rows: Annotated[np.ndarray, Dims("rows", "width")]
    more: Annotated[np.ndarray, Dims(2)] | None
    names: Annotated[tuple[Annotated[str, OneOf("x", "y")], ...], Length(0, 2)]


def honest() -> Width:
    return Width(3, np.zeros((2, 3)), np.zeros(2), ("x", "y"))


def test_a_message_announces_what_later_fields_and_messages_go_by() -> None:
    body = declaration_of(Width).body
    assert body.check(honest(), {"rows": 2}) == body.announced(honest()) == {"width": 3}
    with pytest.raises(WrongContent, match="width is 3 after 4 was announced"):
        body.check(honest(), {"rows": 2, "width": 4})


def test_every_fault_of_a_message_is_refused() -> None:
    body = declaration_of(Width).body
    faults = dict(body.faults(honest(), {"rows": 2, "width": 3}))
    assert {name.split(":")[0] for name in faults} == {"width", "rows", "more", "names", "names.0"}
    later = dataclasses.replace(honest(), names=("x", "z"))
    for content in (*faults.values(), later):
        with pytest.raises(WrongContent):
            body.check(content, {"rows": 2})


def test_what_announces_must_be_bounded() -> None:
    with pytest.raises(DeclarationError, match="without bounds"):

        @message(sender="a", receiver="b", protection=PLAIN, step="set-up")
        class Unbounded:
            """A width. Reveals: it."""

            width: Annotated[int, Binds("width")]


def test_an_annotation_that_is_no_rule_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no rule"):

        @message(sender="a", receiver="b", protection=PLAIN, step="set-up")
        class Odd:
            """A width. Reveals: it."""

            width: Annotated[int, "a width"]


@message(
    sender=("bank", "shop"),
    receiver=("shop", "bank"),
    protection=by("protection", none=PLAIN, paillier=ENCRYPTED, opened=Sealed(PLAIN), noise=when("budget", NOISED)),
    step="1",
    carries=Carries.ROW_CODE,
    warns={PLAIN: Warns.COLUMNS, NOISED: Warns.COLUMNS},
)
class Signals:
    """Codes. Reveals: them. Reveals when ENCRYPTED: nothing."""

    codes: Annotated[CipherArray | np.ndarray, Dims("rows")]


def plan(**config: Any) -> RunPlan:
    return RunPlan(name="run", method="toy", roles={"bank": ("b",), "shop": ("s",)}, config=config)


def test_a_protection_is_resolved_from_the_settings() -> None:
    found = {
        name: template_of(Signals).declarations(plan(protection=name, budget=0))
        for name in ("none", "paillier", "opened", "noise", "other")
    }
    assert [one.protection for one in found["none"]] == [PLAIN, PLAIN]
    assert [(one.sender, one.receiver) for one in found["none"]] == [("bank", "shop"), ("shop", "bank")]
    assert found["paillier"][0].reveals == "nothing."
    assert found["none"][0].reveals == "them."
    assert not found["none"][0].body.carries_ciphertext
    assert found["paillier"][0].body.carries_ciphertext
    assert found["opened"][0].body.carries_ciphertext
    assert found["opened"][0].protection == PLAIN
    assert found["noise"] == found["other"] == ()
    assert found["none"][0].warns == Warns.COLUMNS
    assert not found["paillier"][0].warns
    assert "protection = 'paillier'" in found["none"][0].remedy
    assert len({one.schema for ones in found.values() for one in ones}) == 6


def test_roles_and_conditions_can_be_narrowed() -> None:
    narrow = between(Signals, "bank", "shop").where(lambda plan: plan.config["wanted"])
    assert len(narrow.declarations(plan(protection="none", wanted=True))) == 1
    assert narrow.declarations(plan(protection="none", wanted=False)) == ()
    assert len(between(Signals, ("bank", "shop"), ("bank", "shop"), same_role=True).pairs) == 4


def test_a_message_that_depends_on_the_run_has_no_declaration_by_itself() -> None:
    with pytest.raises(DeclarationError, match="depends on the run"):
        declaration_of(Signals)


def test_a_warning_under_a_protection_that_never_is_is_refused() -> None:
    with pytest.raises(DeclarationError, match="never has"):

        @message(sender="a", receiver="b", protection=NOISED, step="1", warns=Warns.LABELS)
        class Noised:
            """Codes. Reveals: them."""

            value: bool


def test_what_must_be_warned_of() -> None:
    assert must_warn(Carries.ROW_GRADIENT | Carries.ROW_CODE) == Warns.LABELS | Warns.COLUMNS
    assert must_warn(Carries.SUM | Carries.KEY) == Warns.NOTHING
