"""The linear-system attack: refused by default, real where it is allowed, and blunted by noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.unit.methods.ftl.worlds import frames, run_of, settings
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.crypto import Format
from colonnade.errors import LeakRefused
from colonnade.ledger import LedgerWriter
from colonnade.methods.ftl import METHOD, maths, sealed
from colonnade.methods.ftl import link as linking
from colonnade.methods.ftl.link import Link, Sizes, check_guard
from colonnade.session import Channel

ROWS = 40
# Of 57 shared rows 40 train.
WORLD: dict[str, Any] = {"shared": 57, "own": 60}


@dataclass
class Source:
    """What a curious source keeps: its own side of the first step, and the gradient it got."""

    own: dict[str, Any] = field(default_factory=dict)
    answers: list[np.ndarray] = field(default_factory=list)
    codes: np.ndarray | None = None
    """The truth, which it does not have: the target's codes."""

    def solve(self) -> np.ndarray:
        """Work out the target's codes from the gradient: for each code entry one system of linear equations."""
        objective, translator, every, shared = (
            self.own[name] for name in ("objective", "translator", "every", "shared")
        )
        slopes, inputs, count = every.slopes[-1], every.inputs[-1], len(translator.centred)
        width, scores = translator.phi.shape[1], translator.phi.shape[0]
        gradient = self.answers[0][: width * inputs.shape[1]].reshape(width, -1)
        found = np.zeros((len(shared), width))
        for entry in range(width):
            pulls = objective.gamma * objective.kappa * slopes[shared, entry, None] * inputs[shared]
            by_mean = (slopes[:count, entry, None] * inputs[:count]).mean(0)
            by_score = np.stack(
                [
                    (centred[:, None] * slopes[:count, entry, None] * inputs[:count]).mean(0)
                    for centred in translator.centred.T
                ]
            )
            along = by_score * translator.mean[entry] + translator.phi[:, entry, None] * by_mean
            system = np.vstack([pulls, by_score, along]).T
            assert system.shape == (inputs.shape[1], len(shared) + 2 * scores)
            found[:, entry] = np.linalg.lstsq(system, gradient[entry], rcond=None)[0][: len(shared)]
        return found

    def error(self) -> float:
        assert self.codes is not None
        return float(np.abs(self.solve() - self.codes).max())

    def correlation(self) -> float:
        assert self.codes is not None
        guess, truth = (one - one.mean(0) for one in (self.solve(), self.codes))
        return float((guess * truth).sum() / np.sqrt((guess**2).sum() * (truth**2).sum()))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    curious = Source()
    factors, answers, seal = maths.source_factors, Link.answers, Link.seal

    def source_factors(objective: Any, translator: Any, weights: Any, every: Any, shared: Any) -> np.ndarray:
        if not curious.own:
            curious.own = {"objective": objective, "translator": translator, "every": every, "shared": shared}
            curious.own["weights"] = weights
        return factors(objective, translator, weights, every, shared)

    def kept(link: Link) -> list[np.ndarray]:
        found = answers(link)
        if link.peer.role == "source" and not curious.answers:
            curious.answers = [one.copy() for one in found]
        return found

    def sealing(link: Link, values: Any, format: Format) -> Any:
        if link.peer.role == "target" and curious.codes is None:
            curious.codes = np.array(values)
        return seal(link, values, format)

    monkeypatch.setattr(maths, "source_factors", source_factors)
    monkeypatch.setattr(Link, "answers", kept)
    monkeypatch.setattr(Link, "seal", sealing)
    return curious


def test_a_leaking_run_is_refused_before_anything_but_sizes_has_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send = Channel.send

    def noted(channel: Channel, message: Any) -> None:
        sent.append(type(message).__name__)
        send(channel, message)

    monkeypatch.setattr(Channel, "send", noted)
    with pytest.raises(LeakRefused, match="work out the other's codes") as refused:
        run_of(frames(columns=(ROWS, 4), **WORLD), settings())
    # One layer of 40 columns: 41 equations for 40 unknowns in each code entry.
    assert f"{ROWS * 3} unknown" in str(refused.value)
    assert f"{(ROWS + 1) * 3} parameters" in str(refused.value)
    assert f"At least {2 * (ROWS + 1)} rows" in str(refused.value)
    declared = {one.name for one in METHOD.declarations}
    assert "LayerInputs" in sent
    assert declared & set(sent) <= {"PublicModulus", "LayerInputs", "LabelledRows"}


def test_with_the_override_the_source_solves_for_all_codes_and_both_ledgers_say_so(source: Source) -> None:
    found = frames(columns=(ROWS + 80, 4), **WORLD)
    run = run_of(found, settings(allow_leak=True, iterations=1, gamma=2.0))
    assert source.error() < 1e-8
    for party, partner in (("bank0", "shop0"), ("shop0", "bank0")):
        (mark,) = [entry.content for entry in run.ledgers[party].entries if entry.kind == "override"]
        assert mark["guard"] == "linear system"
        assert mark["partner"] == partner
        assert (mark["rows"], mark["unknowns"]) == (ROWS, ROWS * 3)
        assert mark["equations"] == (ROWS + 81) * 3
    run.verify()


def test_the_attack_fails_where_the_guard_lets_a_run_pass(source: Source, record_property: Any) -> None:
    """It is no proof: the guess of least norm is better than none, and more steps give more equations."""
    with integers_for_ciphertexts():
        run = run_of(frames(columns=(ROWS // 2 - 1, 4), **WORLD), settings(iterations=1))
    assert not [entry for entry in run.ledgers["bank0"].entries if entry.kind == "override"]
    record_property("correlation", source.correlation())
    assert source.error() > 0.1
    assert source.correlation() < 0.95


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_noise_of_the_target_spoils_the_attack(source: Source, noise: float) -> None:
    found = frames(columns=(ROWS + 80, 4), **WORLD)
    with integers_for_ciphertexts():
        run_of(found, settings(allow_leak=True, iterations=1, gamma=2.0, noise=noise))
    assert source.codes is not None
    spread = float((source.codes - source.codes.mean(0)).std())
    typical = float(np.sqrt(np.mean((source.solve() - source.codes) ** 2)))
    assert typical > 3 * spread if noise else typical < 1e-8


def test_noise_has_the_stated_deviation_in_the_gradient_and_leaves_the_loss_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = frames(columns=(12, 11))
    taken: dict[str, list[np.ndarray]] = {}
    answers = Link.answers

    def kept(link: Link) -> list[np.ndarray]:
        made = answers(link)
        taken.setdefault(link.peer.role, []).extend(one.copy() for one in made)
        return made

    monkeypatch.setattr(Link, "answers", kept)
    seen, losses = [], []
    for noise in (0.0, 0.01):
        taken.clear()
        with integers_for_ciphertexts():
            run = run_of(found, settings(width=20, iterations=1, noise=noise, labelled_rows=25))
        losses.append(run.history["bank0"][0]["training_loss"])
        seen.append({role: made[0] for role, made in taken.items()})
    assert losses[0] == losses[1]
    for role in ("source", "target"):
        added = (seen[1][role] - seen[0][role]) / 25
        if role == "source":
            assert added[-1] == 0.0
            added = added[:-1]
        assert len(added) >= 240
        assert abs(added.std() - 0.01) < 0.002
        assert abs(added.mean()) < 0.003


def guarded(rows: int, *sizes: Sizes, scores: int = 1, **changes: Any) -> list[Any]:
    """Return the marks that the guard leaves."""

    class Session:
        ledger = LedgerWriter()

    class Peer:
        peer = "shop"

    check_guard(Session(), Peer(), settings(**changes), rows, scores, *sizes)  # type: ignore[arg-type]
    return [entry.kind for entry in Session.ledger.read().entries]


def test_the_guard_counts_parameters_that_learn_and_rows_of_a_step() -> None:
    one_layer, two_layers = Sizes((9,), 9), Sizes((9, 5), 9)
    assert guarded(20, one_layer, one_layer) == []
    for sizes in ((one_layer, Sizes((10,), 10)), (Sizes((10,), 10), one_layer), (two_layers, one_layer)):
        with pytest.raises(LeakRefused):
            guarded(20, *sizes)
        assert guarded(20, *sizes, allow_leak=True) == ["override"]
    with pytest.raises(LeakRefused):
        guarded(19, one_layer, one_layer)
    # Two layers of 3 outputs: 10 * 5 + 6 * 3 parameters, so that 2 * 68 / 3 rows are needed.
    with pytest.raises(LeakRefused, match="At least 46 rows"):
        guarded(45, two_layers, one_layer)
    assert guarded(46, two_layers, one_layer) == []
    # More scores than a code has numbers tell the code.
    with pytest.raises(LeakRefused, match=r"Set config\.width to 4 or more"):
        guarded(46, one_layer, one_layer, scores=4)
    assert guarded(46, one_layer, one_layer, scores=4, allow_leak=True) == ["override"]
    assert guarded(46, one_layer, one_layer, scores=3) == []
    assert guarded(46, one_layer, one_layer, gamma=0.0, allow_leak=True) == ["override"]
    # What is revealed anyway, or not encrypted, needs no guard.
    for changes in ({"reveal": "rows"}, {"protection": "none"}):
        assert guarded(1, two_layers, one_layer, **changes) == []


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({"batch_size": 10}, False),
        ({"batch_size": 9}, True),
        ({"hidden": (20,)}, True),
        ({"hidden": (20,), "trained_layers": 1}, True),
        ({"hidden": (4,), "trained_layers": 1}, False),
    ],
)
def test_the_guard_is_asked_with_the_rows_of_a_batch_and_the_layers_that_learn(
    changes: dict[str, Any], is_refused: bool
) -> None:
    found = frames(columns=(3, 4), shared=43)
    with integers_for_ciphertexts():
        if is_refused:
            with pytest.raises(LeakRefused):
                run_of(found, settings(iterations=1, **changes))
        else:
            run_of(found, settings(iterations=1, **changes))


def test_each_link_is_guarded_by_itself() -> None:
    """One of two targets shares too few rows."""
    found = frames(targets=2, shared=60)
    few = found["shop1"]
    found["shop1"] = few[few["id"] < 10]
    with integers_for_ciphertexts(), pytest.raises(LeakRefused):
        run_of(found, settings())
    with integers_for_ciphertexts():
        run = run_of(found, settings(allow_leak=True))
    marks = [entry.content["partner"] for entry in run.ledgers["bank0"].entries if entry.kind == "override"]
    assert marks == ["shop1"]
    assert not [entry for entry in run.ledgers["shop0"].entries if entry.kind == "override"]


def test_parameters_are_counted_last_layer_first() -> None:
    assert linking.parameter_counts((9, 5), 3) == [18, 50]
    assert sealed.FRACTION_BITS == 32
    assert cn.FTL().guard == 2.0
