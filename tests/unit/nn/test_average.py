"""Averages of weights over steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from colonnade.nn import WeightAverage


def filled(module: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)


def test_the_average_begins_with_the_first_weights_and_then_follows() -> None:
    module = nn.Linear(2, 1)
    average = WeightAverage(module, 0.75)
    for value in (4.0, 0.0, 0.0):
        filled(module, value)
        average.update()
    assert average.values["weight"].tolist() == [[2.25, 2.25]]
    with average.in_use():
        assert module.weight[0, 0].item() == 2.25
    assert module.weight[0, 0].item() == 0.0


def test_weights_come_back_even_after_an_error() -> None:
    module = nn.Linear(1, 1)
    average = WeightAverage(module, 0.5)
    filled(module, 1.0)
    average.update()
    filled(module, 3.0)
    with pytest.raises(ZeroDivisionError), average.in_use():
        raise ZeroDivisionError
    assert module.weight.item() == 3.0


def test_statistics_are_averaged_and_counters_taken_as_they_are() -> None:
    module = nn.BatchNorm1d(1)
    average = WeightAverage(module, 0.5)
    average.update()
    module(torch.tensor([[0.0], [2.0]]))
    average.update()
    assert average.values["running_mean"].item() == pytest.approx(0.05)
    assert average.values["num_batches_tracked"].item() == 1


def test_a_factor_of_zero_is_the_module_itself() -> None:
    module = nn.Linear(1, 1)
    average = WeightAverage(module, 0.0)
    average.update()
    assert average.values == {}
    with average.in_use():
        filled(module, 7.0)
    assert module.weight.item() == 7.0
