"""What is refused before anything is learned: check 11 of the sheet, and settings that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fedcvt.worlds import frames, run_of, settings, watched
from tests.worlds import integers_for_ciphertexts
from torch import nn

import colonnade as cn
from colonnade.errors import AlignmentError, ConfigError, TableError
from colonnade.methods.fedcvt import train
from colonnade.methods.fedcvt.guards import check_shared_rows, fit_is_hidden
from colonnade.methods.fedcvt.rows import Batches
from colonnade.session import Session


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.0},
        {"learning_rate": -1.0},
        {"noise": 0.0},
        {"clip": 0.0},
        {"pull": -0.1},
        {"epochs": 0},
        {"batch_size": 0},
        {"anchors": 1},
        {"memory_bank": -1},
        {"threshold": 1.0},
        {"delta": 0.0},
        {"label_budget": 4.0},
        {"head_momentum": 1.0},
        {"candidates": ()},
        {"candidates": ("fedcvt", "fedcvt")},
        {"shared_width": 0},
        {"hidden": (0,)},
        {"shared_width": 5},
        {"optimizer_options": {"weight_decay": 0.1}},
        {"level": 2, "candidates": ("fedcvt", "mean_fill")},
        {"level": 2, "candidates": ("mftl",)},
        {"level": 2, "memory_bank": 10},
        {"level": 2, "defence": "marvell"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"config\."):
        settings(**changes)


def test_codes_of_different_widths_need_a_form_that_bears_them() -> None:
    for changes in ({"orthogonality": "dsn"}, {"own_orthogonality": 0.0, "partner_orthogonality": 0.0}):
        run_of(frames(), settings(shared_width=3, unique_width=5, epochs=1, **changes))


# Level 2 with few shared rows


@pytest.mark.parametrize(("shared", "is_refused"), [(6, True), (7, False)])
def test_level_2_needs_more_shared_rows_than_scores(shared: int, is_refused: bool) -> None:
    """n1 <= 2 C: three classes, two parties."""
    tables = frames(shared=shared, own={"bank": 30, "shop": 30})
    config = settings(level=2, epochs=1, least_keys=2.0, batch_size=50)
    evaluate = cn.Evaluate(validation_fraction=0.0, test_fraction=0.0)
    with integers_for_ciphertexts():
        if is_refused:
            with pytest.raises(ConfigError, match="more than 6 shared"):
                run_of(tables, config, evaluate=evaluate)
        else:
            run_of(tables, config, evaluate=evaluate)


def test_the_smallest_batch_counts_and_so_do_anchors() -> None:
    tables = frames(shared=30)
    with pytest.raises(ConfigError, match="more than 6 shared"):
        run_of(tables, settings(level=2, batch_size=5))
    with pytest.raises(ConfigError, match="more than 6 shared"):
        run_of(tables, settings(level=2, anchors=6))
    with pytest.raises(ConfigError, match="least_keys"):
        run_of(tables, settings(level=2, batch_size=12, least_keys=12.0))


@pytest.mark.parametrize("changes", [{"level": 0}, {"level": 1}, {"level": 2, "candidates": ("vanilla",)}], ids=str)
def test_few_shared_rows_are_no_matter_where_no_attention_can_be_told(changes: dict[str, Any]) -> None:
    tables = frames(shared=5, own={"bank": 30, "shop": 10})
    evaluate = cn.Evaluate(validation_fraction=0.0, test_fraction=0.0)
    with integers_for_ciphertexts():
        run_of(tables, settings(epochs=1, **changes), evaluate=evaluate)


def test_a_feature_holder_checks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule protects it from the label holder, which might not check."""
    asked: list[str] = []

    def checked(session: Session, *rest: Any) -> None:
        asked.append(session.party)
        if session.party == "shop":
            check_shared_rows(session, *rest)

    monkeypatch.setattr(train, "check_shared_rows", checked)
    with pytest.raises(ConfigError, match="more than 6 shared"):
        run_of(frames(shared=30), settings(level=2, batch_size=5))
    assert sorted(asked) == ["bank", "shop"]


def test_batches_that_differ_by_one_are_judged_by_the_smaller() -> None:
    batches = Batches(np.arange(13), 7, lambda epoch: 0)
    assert (batches.smallest, batches.largest) == (6, 7)


@pytest.mark.parametrize(
    ("changes", "rows", "parties", "is_sent"),
    [
        ({}, 9, 2, True),
        ({}, 8, 2, False),
        ({}, 1, 2, False),
        ({"unique_width": 8, "orthogonality": "dsn"}, 16, 2, False),
        ({"unique_width": 8, "orthogonality": "dsn"}, 17, 2, True),
        ({"codes": "shared", "unique_width": 8}, 9, 2, True),
        ({}, 100, 3, False),
        ({"sealed_fit": "off"}, 100, 2, False),
        ({"estimate": False}, 100, 2, False),
    ],
    ids=str,
)
def test_the_fit_is_had_only_where_it_does_not_give_attention_away(
    changes: dict[str, Any], rows: int, parties: int, is_sent: bool
) -> None:
    """n1 > 2 x columns of the widest kind of code."""
    assert fit_is_hidden(settings(level=2, **changes), rows, parties) is is_sent


# Rows and networks


def test_no_shared_row_to_learn_from_is_refused() -> None:
    tables = frames(shared=3)
    with pytest.raises(AlignmentError, match="training part would be empty"):
        run_of(tables, settings(), evaluate=cn.Evaluate(validation_fraction=0.5, test_fraction=0.49))
    strangers = frames()
    strangers["shop"]["id"] += 1000
    with pytest.raises((AlignmentError, TableError)):
        run_of(strangers, settings())


@pytest.mark.parametrize("level", [0, 1])
def test_a_single_shared_row_to_learn_from_is_enough_at_open_levels(level: int) -> None:
    """Its fit is skipped: it could only look at itself."""
    tables = frames(shared=4, own={"bank": 30, "shop": 10})
    evaluate = cn.Evaluate(validation_fraction=0.25, test_fraction=0.5)
    run = run_of(tables, settings(level=level, batch_size=1, epochs=2), evaluate=evaluate)
    assert run.tables["bank"]["shared_rows"] == 4
    assert all(torch.isfinite(one).all() for one in run.parts["shop"].tensors.values())


def test_a_module_that_gives_codes_of_another_width_is_refused() -> None:
    """Check 11: the shared width must be the same at all parties."""
    for module in (nn.Linear(4, 5), nn.ModuleDict({"shared": nn.Linear(4, 4), "unique": nn.Linear(4, 3)})):
        with pytest.raises(ConfigError, match=r"gives \(\d,\) numbers per row"):
            run_of(frames(), settings(), modules={"shop": module.double()})


def test_a_module_that_cannot_take_the_columns_or_lacks_a_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot take its 4 encoded columns"):
        run_of(frames(), settings(), modules={"shop": nn.Linear(9, 4)})
    with pytest.raises(ConfigError, match="one named 'unique'"):
        run_of(frames(), settings(), modules={"shop": nn.ModuleDict({"shared": nn.Linear(4, 4)})})


def test_images_of_another_size_or_of_nobody_are_refused() -> None:
    with pytest.raises(ConfigError, match="images of 1x2x3"):
        run_of(frames(), settings(images={"shop": (1, 2, 3)}))
    with pytest.raises(ConfigError, match="no party"):
        run_of(frames(), settings(images={"shopp": (1, 2, 2)}))


def test_a_party_without_columns_is_refused() -> None:
    tables = frames()
    tables["shop"] = tables["shop"][["id"]]
    with pytest.raises(ConfigError, match="no usable feature columns"):
        run_of(tables, settings())
