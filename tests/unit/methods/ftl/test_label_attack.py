"""A curious target and the labels of labelled rows: why gamma = 0 is refused. The guard on codes does not see this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.ftl.worlds import frames, run_of, settings
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.methods.ftl import maths
from colonnade.methods.ftl.link import Link

WIDTH, LABELLED, ITERATIONS = 8, 60, 10


def seen_by_the_target(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], Any, Any]:
    """Return the target's own layers and gradients of every step, the labelled rows, and the truth to compare with."""
    found = frames(shared=285, own=600, columns=(6, 12))
    # At random, so that nothing but the gradients can tell them.
    found["bank0"]["y"] = np.random.default_rng(9).integers(0, 2, len(found["bank0"]))
    layers, gradients, facts = [], [], {}
    factors, answers, weights = maths.target_factors, Link.answers, maths.Translator.row_weights

    def target_factors(own: Any, labelled: Any) -> Any:
        layers.append(own)
        facts["labelled"] = labelled
        return factors(own, labelled)

    def opened(link: Link) -> Any:
        out = answers(link)
        if link.peer.role == "target":
            gradients.append(out[0].reshape(WIDTH, -1).copy())
        return out

    def row_weights(translator: Any, objective: Any, targets: Any, labelled: Any) -> Any:
        facts["truth"] = targets[labelled][:, 0]
        return weights(translator, objective, targets, labelled)

    monkeypatch.setattr(maths, "target_factors", target_factors)
    monkeypatch.setattr(Link, "answers", opened)
    monkeypatch.setattr(maths.Translator, "row_weights", row_weights)
    config = settings(
        width=WIDTH, iterations=ITERATIONS, gamma=0.0, labelled_rows=LABELLED, tolerance=0.0, allow_leak=True
    )
    with integers_for_ciphertexts():
        run_of(found, config)
    return layers, gradients, facts["labelled"], facts["truth"]


@pytest.mark.slow
def test_without_alignment_a_target_works_out_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few labels and one translator a step explain all gradients: fit both."""
    layers, gradients, labelled, truth = seen_by_the_target(monkeypatch)
    inputs = torch.tensor(layers[0].inputs[-1][labelled])
    slopes = torch.tensor(np.stack([one.slopes[-1][labelled] for one in layers]))
    codes = torch.tensor(np.stack([one.codes[labelled] for one in layers]))
    wanted = torch.tensor(np.stack(gradients))
    scale = wanted.abs().mean()
    best = (np.inf, 0.0)
    for restart in range(4):
        torch.manual_seed(restart)
        signs = (0.1 * torch.randn(LABELLED, dtype=torch.float64)).requires_grad_()
        phi = (0.05 * torch.randn(ITERATIONS, WIDTH, dtype=torch.float64)).requires_grad_()
        beta = torch.zeros(ITERATIONS, dtype=torch.float64, requires_grad=True)

        def misfit(signs: Any = signs, phi: Any = phi, beta: Any = beta) -> torch.Tensor:
            slope = -0.5 * torch.tanh(signs)[None] - 0.25 * beta[:, None] + 0.25 * (codes @ phi[:, :, None])[:, :, 0]
            rows = slope[:, :, None] * phi[:, None, :]
            return (((torch.einsum("til,til,im->tlm", rows, slopes, inputs) - wanted) / scale) ** 2).mean()

        solver = torch.optim.LBFGS([signs, phi, beta], max_iter=400, history_size=30, line_search_fn="strong_wolfe")

        def closure(solver: Any = solver, misfit: Any = misfit) -> torch.Tensor:
            solver.zero_grad()
            loss = misfit()
            loss.backward()
            return loss

        solver.step(closure)
        guessed = np.sign(signs.detach().numpy())
        best = min(best, (float(misfit().detach()), max(np.mean(guessed == truth), np.mean(guessed == -truth))))
    assert best[1] > 0.95


def test_gamma_of_zero_is_refused_where_labels_are_to_stay_hidden() -> None:
    with pytest.raises(ConfigError, match="gamma = 0"):
        cn.FTL(gamma=0.0)
    for changes in ({"allow_leak": True}, {"protection": "none"}):
        cn.FTL(gamma=0.0, **changes)
