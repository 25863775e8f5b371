"""Settings from TOML or JSON values, with every mistake named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from colonnade.errors import ConfigError
from colonnade.methods import METHODS
from colonnade.settings import config_to_json, configured, described, presets_of, validated


@dataclass(frozen=True, kw_only=True)
class Inner:
    width: int = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    count: int = 1
    rate: float = 0.5
    shape: tuple[int, ...] = (2,)
    mode: Literal["fast", "slow"] = "fast"
    name: str | None = None
    inner: Mapping[str, Inner] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_methods_settings_round_trip(method: Any) -> None:
    default = method.config()
    document = config_to_json(default)
    assert validated(method.config, document, "config") == default
    assert config_to_json(validated(method.config, document, "config")) == document


def test_good_values_are_taken_with_their_types() -> None:
    document = {
        "count": 3,
        "rate": 1,
        "shape": [4, 5],
        "mode": "slow",
        "inner": {"a": {"width": 2}},
        "options": {"betas": [0.5, 0.9], "nested": {"deep": True}},
    }
    made = validated(Settings, document, "config")
    assert made == Settings(
        count=3, rate=1.0, shape=(4, 5), mode="slow", inner={"a": Inner(width=2)}, options=document["options"]
    )
    assert isinstance(made.rate, float)
    assert isinstance(made.inner["a"], Inner)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"cout": 1}, "no setting 'cout' in [config]. Did you mean 'count'?"),
        ({"count": "1"}, 'config.count is wrong: it should be a whole number. Got "1" instead.'),
        ({"count": True}, "config.count is wrong: it should be a whole number"),
        ({"count": 1.5}, "config.count is wrong: it should be a whole number"),
        ({"rate": "much"}, "config.rate is wrong: it should be a number"),
        ({"rate": float("nan")}, "config.rate must be a finite number. Got nan instead."),
        ({"rate": float("inf")}, "config.rate must be a finite number. Got inf instead."),
        ({"shape": 4}, "config.shape is wrong: it should be a list"),
        ({"shape": [4, "5"]}, "config.shape.1 is wrong: it should be a whole number"),
        ({"mode": "fats"}, "Did you mean 'fast'?"),
        ({"inner": {"a": {"with": 2}}}, "no setting 'with' in [config.inner.a]. Did you mean 'width'?"),
        ({"options": 3}, "config.options is wrong: it should be a table"),
    ],
)
def test_a_mistake_names_the_key_and_what_it_should_be(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Settings, document, "config")
    assert says in str(caught.value)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a table of settings"):
        validated(Settings, "text", "partners.shop")  # type: ignore[arg-type]


def test_a_tables_source_is_never_repeated_for_it_may_hold_a_password() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Table:
        source: str

    with pytest.raises(ConfigError) as caught:
        validated(Table, {"source": ["postgresql://me:secret@host/db"]}, "table")
    assert "secret" not in str(caught.value)


@described
@dataclass(frozen=True, kw_only=True)
class Renewed:
    """Settings of which one has gone and that have a preset."""

    rate: float = 0.1
    """How fast."""
    shape: tuple[int, ...] = (4,)
    """How wide."""
    REPLACED: ClassVar[dict[str, str]] = {"speed": "Write rate."}

    @classmethod
    def paper(cls, **changes: Any) -> Renewed:
        """Return the paper's settings."""
        return cls(**{"rate": 5.0} | changes)


def test_a_setting_that_is_gone_is_refused_with_its_replacement() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'speed' in \[config\]. Write rate."):
        validated(Renewed, {"speed": 1.0}, "config")
    with pytest.raises(ConfigError, match=r"Renewed has no setting 'speed' any more. Write rate."):
        Renewed(speed=1.0)  # type: ignore[call-arg]


def test_a_preset_stands_for_the_defaults_and_other_settings_go_on_top() -> None:
    assert presets_of(Renewed) == {"paper": "Return the paper's settings."}
    assert configured(Renewed, {"preset": "paper"}, "config") == Renewed(rate=5.0)
    assert configured(Renewed, {"preset": "paper", "shape": [1, 2]}, "config") == Renewed(rate=5.0, shape=(1, 2))
    assert configured(Renewed, {"rate": 1.0}, "config") == Renewed(rate=1.0)
    with pytest.raises(ConfigError, match=r"no preset 'papers' of .config.. Did you mean 'paper'"):
        configured(Renewed, {"preset": "papers"}, "config")
    with pytest.raises(ConfigError, match="This method has none"):
        configured(Settings, {"preset": "paper"}, "config")
