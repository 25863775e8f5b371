"""Settings say what they mean, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

import colonnade as cn
from colonnade.methods import METHODS
from colonnade.session import Method
from colonnade.settings import Setting, described, settings_of


@described
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a test."""

    name: str
    """Whose it is."""
    widths: tuple[int, ...] = (2, 3)
    """Widths of layers,
    from first to last."""


@described
@dataclass(frozen=True, kw_only=True)
class MoreSettings(Settings):
    """Settings of another test."""

    mode: Literal["fast", "slow"] | None = None
    """How it goes."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights by party."""


def test_settings_are_told_with_those_of_the_class_they_extend() -> None:
    assert settings_of(MoreSettings) == [
        Setting("name", "text", "required", "Whose it is."),
        Setting("widths", "list of whole numbers", "[2, 3]", "Widths of layers, from first to last."),
        Setting("mode", '"fast", "slow"', "none", "How it goes."),
        Setting("weights", "table of numbers", "{}", "Weights by party."),
    ]


def test_help_shows_every_setting() -> None:
    shown = MoreSettings.__doc__ or ""
    assert shown.startswith("Settings of another test.\n\nSettings:\n")
    assert "  widths: Widths of layers, from first to last.\n" in shown
    assert "patience: Epochs without a better validation loss" in (cn.SplitNN.__doc__ or "")


def test_a_setting_without_a_text_is_refused() -> None:
    with pytest.raises(TypeError, match="Bare: say what depth, rate means"):

        @described
        @dataclass(frozen=True)
        class Bare:
            width: int = 1
            """How wide."""
            depth: int = 2
            rate: float = 0.5


def test_without_source_there_are_settings_but_no_texts() -> None:
    names: dict[str, Any] = {"dataclass": dataclass, "described": described}
    exec("@described\n@dataclass\nclass Typed:\n    width: int = 1\n", names)
    assert settings_of(names["Typed"]) == [Setting("width", "whole number", "1", "")]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_setting_of_a_method_says_what_it_means(method: Method) -> None:
    for setting in settings_of(method.config):
        assert setting.meaning.endswith("."), setting.name
