"""Which columns make which group, which categories stand for others, and settings that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.methods.prada.worlds import GROUPS, frames, roles_of, run_of, settings, tables_of

import colonnade as cn
from colonnade.data import CodeEncoder, PartyTable
from colonnade.errors import ConfigError, LeakRefused, RoleFailed, TableError
from colonnade.methods.prada import propose_groups
from colonnade.methods.prada.groups import (
    Columns,
    check_structure,
    choose_groups,
    group_shapes,
    nearest_ties,
    structure_of,
)

COUNT = 400


def table(seed: int = 0, **changes: Any) -> PartyTable:
    """Return two pairs of columns that say alike things, and one that says nothing."""
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 3, COUNT), generator.normal(size=COUNT)
    columns: dict[str, Any] = {
        "id": np.arange(COUNT),
        "job": np.array(list("abc"))[first],
        "firm": np.array(list("xyz"))[np.where(generator.random(COUNT) < 0.9, first, 0)],
        "size": second,
        "weight": second + 0.1 * generator.normal(size=COUNT),
        "coin": generator.choice(["head", "tail"], COUNT),
    }
    return PartyTable(pd.DataFrame({**columns, **changes}), id="id", name="firm")


def test_columns_that_say_alike_things_are_proposed_together() -> None:
    found = propose_groups(table(), 3)
    assert sorted(map(sorted, found.values())) == [["coin"], ["firm", "job"], ["size", "weight"]]
    assert list(found) == ["group1", "group2", "group3"]
    assert propose_groups(table(), 3, seed=4) == found
    assert len(propose_groups(table(), 99)) == 5
    with pytest.raises(ConfigError, match="at least 1"):
        propose_groups(table(), 0)


def test_missing_cells_and_constant_columns_do_not_disturb_a_proposal() -> None:
    odd = table(size=np.full(COUNT, np.nan), coin=["head"] * COUNT, job=[None] * COUNT)
    found = propose_groups(odd, 2)
    assert sorted(column for columns in found.values() for column in columns) == sorted(
        ["job", "firm", "size", "weight", "coin"]
    )


def test_groups_of_unknown_columns_are_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="jbo"):
        choose_groups(settings(groups={"one": ("jbo",)}, widths={}), table(), 0)
    assert list(choose_groups(settings(groups={}, widths={}), table(), 0)) == ["group1", "group2", "group3", "group4"]


def test_shapes_follow_groups_pairs_and_widths() -> None:
    encoder = CodeEncoder.fit(table(), np.arange(COUNT))
    groups = {"a": ("job", "size"), "b": ("coin",)}
    shapes = group_shapes(settings(groups=groups, widths={"a-b": (4,)}), encoder, groups)
    assert [(one.name, one.codes, one.numbers, one.widths) for one in shapes] == [
        ("a", (0,), (0,), ()),
        ("b", (2,), (), ()),
        ("a-b", (0, 2), (0,), (4,)),
    ]
    (whole,) = group_shapes(settings(groups=groups, widths={}, grouped=False), encoder, groups)
    assert (whole.name, whole.codes, whole.numbers) == ("all", (0, 2), (0,))
    with pytest.raises(ConfigError, match=r"widths\.c"):
        group_shapes(settings(groups=groups, widths={"c": (4,)}), encoder, groups)
    constant = CodeEncoder.fit(table(size=np.ones(COUNT)), np.arange(COUNT))
    with pytest.raises(ConfigError, match="constant"):
        group_shapes(settings(groups={"a": ("size",)}, widths={}), constant, {"a": ("size",)})


def test_a_rare_category_is_tied_to_the_one_whose_rows_are_most_alike() -> None:
    generator = np.random.default_rng(1)
    job = generator.choice(["clerk", "smith"], COUNT).astype(object)
    tool = np.where(job == "clerk", "pen", "hammer").astype(object)
    job[-40:], tool[-40:] = "farrier", "hammer"
    rows = table(job=job, firm=tool, size=np.zeros(COUNT))
    encoder = CodeEncoder.fit(rows, np.arange(COUNT), ["job", "firm"])
    columns = Columns.of(encoder, rows, "float64")
    assert encoder.tables["job"] == ("clerk", "farrier", "smith")
    assert nearest_ties(columns, encoder, np.arange(COUNT - 40), np.arange(COUNT)) == {"job": {2: 3}}


def test_a_category_that_is_rare_in_one_column_and_usual_in_another_of_its_table_stays() -> None:
    generator = np.random.default_rng(0)
    father = generator.choice(list("abcd"), COUNT)
    own = np.where(generator.random(COUNT) < 0.02, "d", generator.choice(list("abc"), COUNT))
    rows = table(job=father, firm=own)
    encoder = CodeEncoder.fit(rows, np.arange(COUNT), ["job", "firm", "coin"], shared=[("job", "firm")])
    columns = Columns.of(encoder, rows, "float64")
    assert not nearest_ties(columns, encoder, np.arange(COUNT), np.arange(COUNT)).get("job")


def test_categories_that_a_fifth_of_few_source_rows_have_are_not_rare() -> None:
    generator = np.random.default_rng(0)
    rows = table(job=generator.choice(list("aaaaaabbb"), COUNT))
    encoder = CodeEncoder.fit(rows, np.arange(COUNT), ["job", "coin"])
    columns = Columns.of(encoder, rows, "float64")
    few = np.arange(100)
    assert not nearest_ties(columns, encoder, few, np.arange(COUNT)).get("job")


WRONG: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": 0},
    "rates": {"learning_rate": 0.0},
    "rates beyond reason": {"head_rate": 1e9},
    "momentum": {"momentum": 1.0},
    "decay": {"fine_l2": 30.0},
    "start": {"start": 5.0},
    "fine start": {"fine_start": -5.0},
    "budget": {"label_budget": 0.0},
    "budget that says nothing": {"label_budget": 4.0},
    "passes": {"fine_epochs": 200},
    "a dash in a name": {"groups": {"a-b": ("c0",)}, "widths": {}},
    "a column twice": {"groups": {"a": ("c0",), "b": ("c0",)}, "widths": {}},
    "an empty group": {"groups": {"a": ()}, "widths": {}},
    "many groups": {"groups": {f"g{place}": (f"c{place}",) for place in range(65)}, "widths": {}},
    "widths": {"widths": {"a": (0,)}},
    "embeddings": {"embeddings": {"c0": 0}},
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_cannot_be_are_refused(case: str) -> None:
    with pytest.raises(ConfigError):
        settings(**WRONG[case])


def test_the_papers_settings_run() -> None:
    """SGD with momentum on networks of which the adversarial step leaves some parts without a gradient."""
    config = cn.PrADA.paper(
        groups=GROUPS,
        epochs=1,
        fine_epochs=1,
        batch_size=14,
        pictures=False,
        protection="none",
        key_size="insecure_test",
    )
    run = run_of(frames(), config)
    assert 0.0 <= run.metrics["auc"] <= 1.0


def test_a_last_batch_of_one_row_does_no_harm() -> None:
    run = run_of(frames(), settings(protection="none", batch_size=41, fine_batch_size=6, tune="all", epochs=1))
    assert 0.0 <= run.metrics["auc"] <= 1.0


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_bank_without_columns_of_its_own_learns_and_is_compared(task: str) -> None:
    found = frames(task, columns=0)
    run = run_of(found, settings(protection="none", compare="local", task=task, epochs=1, fine_epochs=1))
    assert run.findings["transfer"].values["chosen"] in ("transfer", "local")
    tables = {party: one for party, one in tables_of(found).items() if party != "sister0"}
    assert len(run.predict(tables)) == 48


def test_a_target_without_labelled_training_rows_is_told_so() -> None:
    found = frames()
    bank = found["bank0"].copy()
    bank.loc[bank["y"].notna().to_numpy().cumsum() > 2, "y"] = np.nan
    if bank["y"].nunique() < 2:
        bank.loc[bank.index[:2], "y"] = [0.0, 1.0]
    with pytest.raises((TableError, cn.errors.ColonnadeError)) as error:
        run_of({**found, "bank0": bank}, settings(protection="none"))
    assert not isinstance(error.value, RoleFailed)


def test_without_a_source_everything_must_learn_from_the_target() -> None:
    found = frames(sources=0)
    with pytest.raises(ConfigError, match="tune = 'all'"):
        run_of(found, settings(protection="none"))
    with pytest.raises(ConfigError, match="needs a source"):
        run_of(found, settings(protection="none"), stage="pretrain")
    assert "source" not in roles_of(list(found))


def test_novelties_need_fewer_scores_than_inputs() -> None:
    """A 0/1 column could be read from as many scores of a row as the layer has inputs."""
    with pytest.raises(LeakRefused, match="novelties"):
        run_of(frames(), settings(protection="none", novelties=1, fine_epochs=4, epochs=1))
    run = run_of(frames(), settings(protection="none", novelties=1, fine_epochs=3, epochs=1))
    assert np.array(run.parts["bank0"].document["heads"]["finetune"]["weights"]).shape == (4, 1)


def test_pretraining_and_fine_tuning_apart_give_the_model_of_both_together() -> None:
    """Stages of their own, with the source absent from the second; in the clear, bit for bit."""
    found, config = frames(), settings(protection="none")
    whole = run_of(found, config)
    first = run_of(found, config, stage="pretrain", launch=cn.Launch(name="apart"))
    rest = {party: one for party, one in found.items() if party != "sister0"}
    second = run_of(rest, config, stage="finetune", launch=cn.Launch(name="apart"), after=first)
    for name, value in whole.parts["bank0"].tensors.items():
        assert np.allclose(value.numpy(), second.parts["bank0"].tensors[name].numpy(), atol=1e-12), name
    for name, value in first.parts["data"].tensors.items():
        assert (value.numpy() == second.parts["data"].tensors[name].numpy()).all(), name
    assert whole.metrics == second.metrics


def test_a_better_model_without_transfer_is_used_and_says_so() -> None:
    """Negative transfer: where the source's label means the opposite, the target's own columns win."""
    found = frames(labelled=48, target_rows=160, source_rows=60)
    config = settings(protection="none", compare="local", epochs=1, fine_epochs=1, fine_rate=1e-3, margin=0.0)
    run = run_of(found, config)
    values = run.findings["transfer"].values
    best = max(("transfer", "local"), key=lambda name: values[name]["validation"])
    assert values["chosen"] == best


def test_a_stage_does_not_go_on_from_networks_of_other_settings() -> None:
    earlier = structure_of(cn.PrADA(widths={"a": (4, 2)}))
    check_structure(cn.PrADA(widths={"a": (4, 2)}, fine_epochs=3, tune="all"), earlier)
    for changed in ({"aggregate": 2}, {"grouped": False}, {"precision": "float64"}, {"widths": {"a": (4, 3)}}):
        with pytest.raises(ConfigError, match=f"config.{next(iter(changed))} differs"):
            check_structure(cn.PrADA(**{"widths": {"a": (4, 2)}, **changed}), earlier)
