"""Which model serves which rows, and scores in all three situations at all levels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.parties import with_modules, with_policies
from tests.unit.methods.fedcvt.worlds import frames, run_of, settings, tables_of, watched
from tests.worlds import integers_for_ciphertexts
from torch import nn

import colonnade as cn
from colonnade.errors import ConfigError, PolicyRefused
from colonnade.methods.fedcvt import train
from colonnade.methods.fedcvt.choice import goodness
from colonnade.session import ModelPart, Policy

LEVELS = (0, 1, 2)
VALIDATED = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2)


@functools.cache
def trained(level: int, parties: int = 2, **changes: Any) -> cn.Run:
    options = {"level": level, "epochs": 2, "noise": 0.1, "least_keys": 2.0, **changes}
    with integers_for_ciphertexts():
        return run_of(frames("multiclass", parties), settings(**options), evaluate=VALIDATED)


def new_rows(parties: int = 2, *, shared: int = 12, own: int = 5) -> dict[str, pd.DataFrame]:
    """Return rows nobody has seen, of all three situations."""
    names = ["bank", "shop", "telco"][:parties]
    found = frames("multiclass", parties, shared=shared, own=dict.fromkeys(("bank", "shop", "telco"), own), seed=77)
    tables = {name: frame.drop(columns="y", errors="ignore") for name, frame in found.items()}
    for name in names:
        tables[name]["id"] += 5000
    return tables


def predicted(run: cn.Run, tables: Mapping[str, pd.DataFrame], **modules: nn.Module) -> pd.DataFrame:
    with integers_for_ciphertexts():
        return run.predict(with_modules(tables_of(tables), modules))


def of(scores: pd.DataFrame, party: str) -> pd.DataFrame:
    return scores[scores["party"] == party] if "party" in scores else scores


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_all_situations_are_scored_for_those_who_may_know(level: int, parties: int) -> None:
    tables = new_rows(parties)
    scores = predicted(trained(level, parties), tables)
    bank = of(scores, "bank")
    assert sorted(bank["id"]) == sorted(tables["bank"]["id"])
    known = dict(zip(bank["id"], bank["known to"], strict=True))
    alone = "{} only" if parties == 2 else "{}, not all parties"
    for identifier, who in known.items():
        assert who == ("all parties" if identifier < 5012 else alone.format("bank"))
    values = bank[[one for one in bank if str(one).startswith("probability_")]].to_numpy(float)
    assert values.shape == (17, 3)
    assert np.allclose(values.sum(axis=1), 1.0)
    for party in list(tables)[1:]:
        own = of(scores, party)
        assert sorted(own["id"]) == sorted(tables[party]["id"][tables[party]["id"] >= 5012])
        assert set(own["known to"]) == {alone.format(party)}
        assert own["prediction"].isin([0, 1, 2]).all()
        assert own[[one for one in own if str(one).startswith("probability_")]].isna().all(axis=None), (
            "no scores, no sureness"
        )


@pytest.mark.parametrize("level", LEVELS)
def test_no_shared_row_is_no_matter(level: int) -> None:
    tables = new_rows(shared=1)
    tables["shop"] = tables["shop"][tables["shop"]["id"] != 5000]
    scores = predicted(trained(level), tables)
    assert set(of(scores, "bank")["known to"]) == {"bank only"}
    assert len(of(scores, "shop")) == 5


@pytest.mark.parametrize("level", LEVELS)
def test_shared_rows_only_need_no_estimates(level: int) -> None:
    tables = new_rows(own=0)
    scores = predicted(trained(level), tables)
    assert set(scores["known to"]) == {"all parties"}
    assert len(scores) == 12
    assert "party" not in scores


@pytest.mark.parametrize("level", LEVELS)
def test_where_partners_get_no_answers_none_are_asked_for(level: int) -> None:
    run = trained(level, partner_answers="none")
    scores = predicted(run, new_rows())
    assert "party" not in scores
    assert len(scores) == 17


@pytest.mark.parametrize("level", [0, 2])
def test_scores_of_known_rows_are_those_of_the_end_of_training(level: int) -> None:
    """The same rows once more, with all views: what was tested is what is served."""
    with integers_for_ciphertexts(), watched() as found:
        run = run_of(frames(), settings(level=level, epochs=2, least_keys=2.0))
    tables = {name: frame.drop(columns="y", errors="ignore") for name, frame in frames().items()}
    scores = of(predicted(run, tables), "bank").set_index("id")
    ids = tables["bank"]["id"].to_numpy()[found.tables["bank"].test]
    again = scores.loc[ids][[f"probability_{name}" for name in range(3)]].to_numpy(float)
    assert np.abs(again - found.outputs["shared"]["fedcvt"][1].softmax(dim=1).numpy()).max() < 1e-6


def test_estimates_use_the_anchors_that_were_kept() -> None:
    """Other anchors would give other scores to rows of one party."""
    run, tables = trained(0), new_rows()
    part = run.parts["bank"]
    ways = {name: {**way, "name": "fedcvt"} for name, way in part.document["chosen"].items()}
    document = {**part.document, "chosen": ways}
    tensors = {name: torch.zeros_like(one) if "anchors.1" in name else one for name, one in part.tensors.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run.parts, "bank", ModelPart(dict(part.tensors), document))  # type: ignore[arg-type]
        before = predicted(run, tables)
        patch.setitem(run.parts, "bank", ModelPart(tensors, document))  # type: ignore[arg-type]
        after = predicted(run, tables)
    columns = [f"probability_{name}" for name in range(3)]
    moved = np.abs(of(before, "bank")[columns].to_numpy(float) - of(after, "bank")[columns].to_numpy(float)).max(axis=1)
    is_shared = (of(before, "bank")["known to"] == "all parties").to_numpy()
    assert (moved[is_shared] == 0.0).all()
    assert (moved[~is_shared] > 0.0).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_part_of_another_training_is_refused(level: int) -> None:
    one = trained(level)
    with integers_for_ciphertexts():
        other = run_of(frames(), settings(level=level, epochs=2, noise=0.1, least_keys=2.0), evaluate=VALIDATED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(one.parts, "shop", other.parts["shop"])  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="another training"):
            predicted(one, new_rows())


@pytest.mark.parametrize("level", [2, *[pytest.param(level, marks=pytest.mark.slow) for level in (0, 1)]])
def test_predictions_for_a_partner_are_limited_by_the_day(level: int, tmp_path: Path) -> None:
    options = settings(level=level, epochs=1, noise=0.1, least_keys=2.0)
    with integers_for_ciphertexts():
        run = run_of(frames(), options, evaluate=VALIDATED, folder=tmp_path / "run")
    limited = with_policies(tables_of(new_rows()), {"bank": Policy(predictions_per_day=7)})
    with integers_for_ciphertexts():
        assert len(of(run.predict(limited), "shop")) == 5
        with pytest.raises(PolicyRefused, match=r"at most 7 rows.*5 were"):
            run.predict(limited)
    lines = [path.read_text() for path in (tmp_path / "run").rglob("queries.jsonl")]
    assert any('"refused"' in line and '"scored"' in line for line in lines)


@pytest.mark.parametrize("level", [2, *[pytest.param(level, marks=pytest.mark.slow) for level in (0, 1)]])
def test_saved_runs_predict_as_before(level: int, tmp_path: Path) -> None:
    options = settings(level=level, epochs=1, noise=0.1, least_keys=2.0, candidates=("fedcvt", "vanilla", "local"))
    with integers_for_ciphertexts():
        run = run_of(frames(), options, evaluate=VALIDATED, folder=tmp_path / "run")
        loaded = cn.load_run(tmp_path / "run")
        one, two = (found.predict(tables_of(new_rows())) for found in (run, loaded))
    assert (one["prediction"] == two["prediction"]).all() or level == 1, "noise is drawn anew for every prediction"


# The choice


def test_the_label_holders_own_model_is_used_where_it_is_better() -> None:
    """The shop's columns are noise here, and few rows are shared."""
    tables = frames("binary", shared=40, own={"bank": 200, "shop": 20}, noise=0.05)
    generator = np.random.default_rng(0)
    columns = [one for one in tables["shop"] if one != "id"]
    tables["shop"][columns] = generator.normal(size=(len(tables["shop"]), len(columns)))
    config = settings(
        candidates=("fedcvt", "vanilla", "local"),
        epochs=1,
        batch_size=40,
        own_batch_size=200,
        learning_rate=0.0001,
        patience=0,
    )
    original = train.local_ways

    def better(session: Any, holding: Any, config: cn.FedCVT, *rest: Any) -> Any:
        return original(session, holding, dataclasses.replace(config, learning_rate=0.05, epochs=60), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "local_ways", better)
        run = run_of(tables, config, evaluate=cn.Evaluate(validation_fraction=0.4, test_fraction=0.2))
    chosen = run.parts["bank"].document["chosen"]
    assert chosen["shared"]["model"] == chosen["bank"]["model"] == "local"
    assert run.parts["shop"].document["chosen"]["shared"] == "local"
    found = run.findings["situations"].values
    assert found["shared"]["local"]["used"]
    best = max(one["validation"] for one in found["shared"].values())
    assert found["shared"]["local"]["validation"] == best
    fresh = {
        name: frame.drop(columns="y", errors="ignore").assign(id=frame["id"] + 5000) for name, frame in tables.items()
    }
    scores = predicted(run, fresh)
    assert len(of(scores, "bank")) == 240
    assert len(of(scores, "shop")) == 20


@pytest.mark.parametrize("level", LEVELS)
def test_for_every_situation_the_best_on_validation_rows_is_used(level: int) -> None:
    with integers_for_ciphertexts(), watched() as found:
        run = run_of(
            frames(shared=80),
            settings(level=level, candidates=("fedcvt", "vanilla", "local"), epochs=2, least_keys=2.0, noise=0.1),
            evaluate=VALIDATED,
        )
    values = run.findings["situations"].values
    assert set(values) == {"measure", "shared", "bank", "shop"}
    assert set(values["shared"]) == {"fedcvt", "vanilla", "local"}
    assert set(values["bank"]) == {"fedcvt", "fedcvt, its own head", "local"}
    assert set(values["shop"]) == {"fedcvt", "fedcvt, its own head"}
    for situation in ("shared", "bank", "shop"):
        ways = values[situation]
        (used,) = [way for way, about in ways.items() if about["used"]]
        assert ways[used]["validation"] == max(about["validation"] for about in ways.values())
        assert run.parts["bank"].document["chosen"][situation]["name"] == used
    (on_test,) = [one["test"] for one in values["shared"].values() if one["used"]]
    assert run.metrics["accuracy"] == pytest.approx(on_test)
    truth = found.targets[torch.from_numpy(found.tables["bank"].validation)]
    assert values["shared"]["fedcvt"]["validation"] == pytest.approx(
        goodness("multiclass", found.outputs["shared"]["fedcvt"][0], truth)
    )


def test_all_candidates_train_and_score_shared_rows() -> None:
    names = ("fedcvt", "vanilla", "wide", "mean_fill", "mftl", "ftl", "local")
    run = run_of(frames(), settings(candidates=names, epochs=1), evaluate=VALIDATED)
    assert set(run.findings["situations"].values["shared"]) == set(names)
    assert {name.partition("/")[0] for name in run.parts["bank"].tensors} == set(names)
    assert {name.partition("/")[0] for name in run.parts["shop"].tensors} == set(names) - {"local"}


def test_goodness_by_hand() -> None:
    assert goodness("multiclass", torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])) == 0.5
    assert goodness("binary", torch.tensor([[2.0], [-1.0], [0.0]]), torch.tensor([1.0, 0.0, 0.0])) == 1.0
    assert goodness("regression", torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 3.0])) == 1.0
    assert goodness("regression", torch.tensor([[2.0], [2.0]]), torch.tensor([1.0, 3.0])) == 0.0
    assert goodness("binary", torch.tensor([[2.0]]), torch.tensor([1.0])) == 1.0
    assert goodness("multiclass", torch.zeros(0, 2), torch.zeros(0)) == 0.0


@pytest.mark.parametrize("task", ["binary", "regression"])
@pytest.mark.parametrize("level", LEVELS)
def test_two_classes_and_numbers_are_scored_in_their_own_terms(level: int, task: str) -> None:
    with integers_for_ciphertexts():
        run = run_of(frames(task), settings(level=level, epochs=2, noise=0.1, least_keys=2.0), evaluate=VALIDATED)
    scores = predicted(run, new_rows())
    own = of(scores, "shop")
    assert len(own) == 5
    if task == "binary":
        assert of(scores, "bank")["probability_1"].between(0, 1).all()
        assert own["prediction"].isin([0, 1]).all()
    else:
        assert scores["prediction"].between(-99, 99).all()
        assert of(scores, "bank")["prediction"].std() > 0


# Networks of one's own


def own_networks(kind: str) -> nn.Module:
    if kind == "one module":
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    return nn.ModuleDict({"shared": nn.Linear(4, 4), "unique": nn.Sequential(nn.Linear(4, 4), nn.ReLU())}).double()


@pytest.mark.parametrize("kind", ["one module", "a module for each kind"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_party_may_bring_networks_of_its_own(level: int, kind: str) -> None:
    with integers_for_ciphertexts(), watched() as found:
        run = run_of(
            frames(),
            settings(level=level, epochs=2, noise=0.1, least_keys=2.0),
            evaluate=VALIDATED,
            modules={"shop": own_networks(kind)},
        )
    drawn = found.encoders["shop"]
    if kind == "one module":
        assert not torch.equal(drawn["shared"][0].weight, drawn["unique"][0].weight), "each kind has weights of its own"
    else:
        assert isinstance(drawn["shared"], nn.Linear)
        assert isinstance(drawn["unique"], nn.Sequential)
    tables = new_rows()
    scores = predicted(run, tables, shop=own_networks(kind))
    assert len(of(scores, "bank")) == 17
    with pytest.raises(ConfigError, match="module of your own"):
        predicted(run, tables)
    with pytest.raises(ConfigError, match="Do not pass a module"):
        predicted(run, tables, shop=own_networks(kind), bank=nn.Linear(5, 4))


@pytest.mark.parametrize("level", [0, 2])
def test_pixels_get_convolutions(level: int) -> None:
    tables = frames(own={"bank": 20, "shop": 20})
    generator = np.random.default_rng(2)
    pixels = generator.normal(size=(len(tables["shop"]), 64)) + tables["shop"][["shop0"]].to_numpy() / 3
    shop = pd.DataFrame(pixels, columns=[f"p{place}" for place in range(64)]).assign(id=tables["shop"]["id"])
    config = settings(level=level, images={"shop": (1, 8, 8)}, epochs=1, least_keys=2.0, learning_rate=1e-3)
    with integers_for_ciphertexts(), watched() as found:
        run = run_of(tables | {"shop": shop}, config, evaluate=VALIDATED)
    kinds = {type(one) for one in found.encoders["shop"].modules()}
    assert nn.Conv2d in kinds
    assert nn.Conv2d not in {type(one) for one in found.encoders["bank"].modules()}
    fresh = {"bank": tables["bank"].drop(columns="y"), "shop": shop}
    assert len(of(predicted(run, fresh), "bank")) == 80


def test_a_label_holder_alone_trains_its_own_model() -> None:
    tables = frames()
    run = cn.simulate(
        settings(candidates=("local",), epochs=3),
        tables_of({"bank": tables["bank"]}),
        roles={"label_holder": "bank"},
        seed=1,
        evaluate=VALIDATED,
    )
    assert run.parts["bank"].document["chosen"]["shared"]["model"] == "local"


# Parts that can be left out

VARIANTS: dict[str, dict[str, Any]] = {
    "no estimates": {"estimate": False},
    "no party heads": {"cross_view": False},
    "neither": {"estimate": False, "cross_view": False},
    "unique codes": {"codes": "unique"},
    "shared codes": {"codes": "shared"},
    "no labels for partners": {"pseudo_labels": False},
    "no ties": dict.fromkeys(("pull", "own_fit", "partner_fit", "own_orthogonality", "partner_orthogonality"), 0.0),
    "one fit": {"own_fit": 0.0},
    "the other fit": {"partner_fit": 0.0},
    "shared rows only": {"candidates": ("vanilla", "wide")},
    "own columns only": {"candidates": ("local",)},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("level", [0, pytest.param(1, marks=pytest.mark.slow), 2])
def test_parts_can_be_left_out_at_every_level(level: int, name: str) -> None:
    config = settings(level=level, epochs=2, noise=0.1, least_keys=2.0, own_batch_size=30, **VARIANTS[name])
    with integers_for_ciphertexts():
        run = run_of(frames(), config, evaluate=VALIDATED)
    scores = predicted(run, new_rows())
    chosen = run.parts["bank"].document["chosen"]
    assert len(of(scores, "bank")) == (17 if "bank" in chosen else 12)
    assert ("party" in scores) is ("shop" in chosen)
