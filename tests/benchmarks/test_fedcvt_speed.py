"""The central side of FedCVT's benchmark trains by the method's own losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.fedcvt_speed import Central, World, crossed_in_step, train_central, train_federated
from tests.fedcvt_reference import Batch, Networks, Settings, objective
from torch import nn

from colonnade.methods.fedcvt import FedCVT


def test_a_central_step_has_the_loss_of_the_reference() -> None:
    torch.manual_seed(4)
    columns, shared, own, classes = (5, 7), 6, (4, 9), 3
    # So low a threshold keeps some rows and not all.
    config = FedCVT(shared_width=4, unique_width=4, threshold=0.34)
    central = Central(columns, config, classes).double()
    tables = [torch.randn(shared + more, width, dtype=torch.float64) for more, width in zip(own, columns, strict=True)]
    labels = torch.randint(0, classes, (shared + own[0],))
    networks = Networks(
        [nn.Sequential(one, nn.ReLU()) for one in central.shared],
        [nn.Sequential(one, nn.ReLU()) for one in central.unique],
        list(central.heads),
        central.joint,
    )
    batch = Batch([range(shared)] * 2, [range(shared, shared + more) for more in own])
    for labels_partner in (False, True):
        settings = Settings(threshold=config.threshold, pseudo_from_step=0 if labels_partner else None)
        wanted = objective(networks, tables, labels, batch, settings)
        found = central.loss(tables, shared, labels[:shared], labels[shared:], labels_partner=labels_partner)
        assert found.item() == pytest.approx(wanted.total.item(), rel=1e-12)
    assert 0 < int(wanted.kept[0].sum()) < own[1]


def test_both_sides_train_on_the_same_tables() -> None:
    world = World(shared=40, own=24, columns=(6, 8), classes=3)
    frames = world.frames()
    assert [len(frame) for frame in frames] == [64, 64]
    assert len(np.intersect1d(frames[0]["id"], frames[1]["id"])) == 40
    config = FedCVT(candidates=("fedcvt",), epochs=2, patience=0, shared_width=4, unique_width=4, own_batch_size=12)
    train_central(frames, world, config, 2)
    run = train_federated(frames, config)
    # Codes of 32 shared rows and 12 others, and their gradient, in single precision.
    messages, size = crossed_in_step(run)
    assert messages == 2
    assert 2 * 44 * 8 * 4 < size < 2 * 44 * 8 * 4 + 200
