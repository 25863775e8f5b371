"""A feature holder looks for labels in the coefficients of columns that few rows carry."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.methods.secure_lr.worlds import encode_otherwise, frames, sums_by_name, tables
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import PeerFailed, PeerLost
from colonnade.exchanges.weighted_sums import SumOwner
from colonnade.methods.secure_lr import train
from colonnade.metrics import area_under_roc
from colonnade.session.checkpoints import CheckpointStore

QUICK: dict[str, Any] = {"key_size": "insecure_test"}
PER_COLUMN = 49
"""With the usual one as many categories as an encoder gives a column of their own."""


def with_rare_categories(rows: int, columns: int) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Give many of the shop's rows a category of their own, and return the label of each such category."""
    found, truth = frames(rows), {}
    shop, labels = found["shop"], found["bank"]["y"].to_numpy()
    for number in range(columns):
        values = np.full(rows, "usual", dtype=object)
        for row in range(PER_COLUMN * number, PER_COLUMN * (number + 1)):
            values[row] = f"x{row}"
            truth[f"branch{number}=x{row}"] = labels[row]
        shop[f"branch{number}"] = values
    return found, truth


def read(run: cn.Run, truth: dict[str, int]) -> tuple[int, int, float]:
    """Take each such coefficient for a label; return how many are right by their sign, of how many, and the AUC."""
    found = {name: value for name, value in sums_by_name(run.parts["shop"]).items() if name in truth}
    if not found:
        return 0, 0, 0.5
    labels, values = np.array([truth[name] for name in found]), np.array(list(found.values()))
    return int(((values > 0) == labels).sum()), len(labels), float(area_under_roc(labels == 1, values))


def test_an_unchanged_feature_holder_has_no_coefficient_of_a_column_that_few_rows_carry() -> None:
    found, truth = with_rare_categories(400, columns=3)
    with integers_for_ciphertexts():
        run = cn.simulate(cn.SecureLR(**QUICK), tables(found), seed=7)
        before = cn.SecureLR(**QUICK, minimum_support=0, coefficient_noise=0.0)
        control = cn.simulate(before, tables(found), seed=7)
    right, targets, area = read(control, truth)
    assert targets > 90, "the attack has something to read where it is let"
    assert area > 0.99
    assert right > 0.95 * targets
    assert read(run, truth) == (0, 0, 0.5)
    assert len(run.coefficients["shop"]) >= 9


def test_against_a_feature_holder_that_encodes_otherwise_noise_hides_most_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode_otherwise(monkeypatch)
    found, truth = with_rare_categories(600, columns=8)
    with integers_for_ciphertexts():
        run = cn.simulate(cn.SecureLR(**QUICK), tables(found), seed=7)
        control = cn.simulate(cn.SecureLR(**QUICK, coefficient_noise=0.0), tables(found), seed=7)
    assert read(control, truth)[2] == 1.0
    right, targets, area = read(run, truth)
    assert targets > 250
    assert area < 0.88
    assert right < 0.82 * targets


def test_noise_is_as_large_as_one_rows_influence_and_drawn_for_every_coefficient() -> None:
    found = frames(400)
    with integers_for_ciphertexts():
        runs = [
            cn.simulate(cn.SecureLR(**QUICK, coefficient_noise=noise, epochs=1), tables(found), seed=7)
            for noise in (0.0, 4.0, 4.0)
        ]
    plain, once, again = (run.parts["shop"].tensors["weights"].numpy()[:, 0] for run in runs)
    influence = 1 / 280
    for noised in (once - plain, again - plain, once - again):
        assert 0.3 < np.sqrt(np.mean(noised**2)) / (4 * influence) < 2.5
        assert np.abs(noised).min() > 0
    sent = [one for run in runs for one in run.ledgers["bank"].summary() if one.message == "SumShare"]
    assert [(one.count, one.protection) for one in sent] == [(1, "PLAIN"), (1, "NOISED"), (1, "NOISED")]


def test_the_label_of_a_row_moves_a_coefficient_by_no_more_than_the_noise_is_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a column is 1 in one row only, flipping the label of that row."""
    encode_otherwise(monkeypatch)
    found, truth = with_rare_categories(300, columns=1)
    aimed = [int(name.split("=x")[1]) for name in truth]
    weights = []
    for _ in range(2):
        with integers_for_ciphertexts():
            run = cn.simulate(cn.SecureLR(**QUICK, coefficient_noise=0.0), tables(found), seed=7)
        part = run.parts["shop"]
        # In units of the sums over rows to which noise is added.
        sums = part.tensors["weights"].numpy() * run.rows["train"]
        weights.append(dict(zip(part.document["coefficients"], sums, strict=True)))
        row = next(row for row in aimed if f"branch0=x{row}" in weights[0])
        found["bank"].loc[row, "y"] = 1 - found["bank"].loc[row, "y"]
    # Each epoch's noise is so much larger that all epochs together tell no more than one would.
    moved = [np.linalg.norm(one - other) for one, other in zip(*(own.values() for own in weights), strict=True)]
    assert 0.5 < max(moved) / np.sqrt(2) < 1.25


@pytest.mark.parametrize("is_lost", [True, False])
def test_noise_of_another_training_in_the_same_run_is_another_one(
    is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature holder that has training begin anew, with columns of zeros, would see the noise alone.

    Who goes on from the last checkpoint gets the same as before.
    """
    opened, gather, open_sums = [], train.gather_scores, SumOwner.open

    def noted(sums: SumOwner, release: int) -> Any:
        opened.append(open_sums(sums, release))
        return opened[-1]

    def broken(*_: Any) -> None:
        monkeypatch.setattr(train, "gather_scores", gather)
        if is_lost:
            monkeypatch.setattr(CheckpointStore, "examine", lambda store: ((), ()))
        raise PeerLost("gone")

    monkeypatch.setattr(SumOwner, "open", noted)
    monkeypatch.setattr(train, "gather_scores", broken)
    for attempt in range(2):
        with integers_for_ciphertexts(), pytest.raises((PeerLost, PeerFailed)) if not attempt else nullcontext():
            cn.simulate(cn.SecureLR(**QUICK, epochs=1), tables(frames(120)), seed=7, folder=tmp_path / "run")
    assert (opened[0] == opened[1]).all() == (not is_lost)
    assert (opened[0] == opened[1]).any() == (not is_lost)


def test_a_run_that_goes_on_elsewhere_keeps_the_directions_in_which_its_sums_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine a decomposition may give the same directions with other signs."""
    gather, fit = train.gather_scores, train.Whitening.fit

    def broken(*_: Any) -> None:
        monkeypatch.setattr(train, "gather_scores", gather)
        monkeypatch.setattr(train.Whitening, "fit", turned)
        raise PeerLost("gone")

    def turned(*about: Any) -> Any:
        found = fit(*about)
        return train.Whitening(found.mean, found.directions * (-1.0) ** np.arange(found.width))

    config, runs = cn.SecureLR(**QUICK, epochs=1, coefficient_noise=0.0), []
    for is_broken in (False, True, False):
        if is_broken:
            monkeypatch.setattr(train, "gather_scores", broken)
        with integers_for_ciphertexts(), pytest.raises((PeerLost, PeerFailed)) if is_broken else nullcontext():
            folder = tmp_path / ("cut" if runs else "whole")
            runs.append(cn.simulate(config, tables(frames(120)), seed=7, folder=folder))
    whole, cut = (run.coefficients["shop"] for run in runs)
    assert all(np.allclose(cut[name], value) for name, value in whole.items())
