"""Settings of FairVFL: what is refused, and what follows from what."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

import colonnade as cn
from colonnade.errors import ConfigError

BOTH = ("gender", "age")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({name: value}, name) for name in ("learning_rate", "discriminator_rate") for value in (0.0, -1.0, math.inf)),
        *(
            ({name: value}, name)
            for name in (
                "removal_weight",
                "contrastive_weight",
                "warm_up",
                "code_noise",
                "protected_noise",
                "clip_gradient",
                "gradient_clip",
                "gradient_noise",
            )
            for value in (-0.1, math.nan)
        ),
        *(
            ({name: 0}, name)
            for name in ("batch_size", "epochs", "nearest", "adversary_every", "discriminator_steps", "attackers")
        ),
        ({"checkpoint_every": -1}, "checkpoint_every"),
        *(({"cool_down": value}, "cool_down") for value in (-0.1, 1.1, math.nan)),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"bins": 1}, "bins"),
        ({"words": 0}, "words"),
        ({"items": 0}, "items"),
        ({"audit_rows": 99}, "audit_rows"),
        ({"smallest_group": 0}, "smallest_group"),
        *(({name: value}, name) for name in ("label_epsilon", "count_epsilon") for value in (-1.0, 51.0, math.nan)),
        *(
            ({name: 0}, "widths")
            for name in ("width", "heads", "embedding", "code_width", "protected_width", "pooling_hidden")
        ),
        *(
            ({name: (4, 0)}, "widths")
            for name in ("task_hidden", "mapper_hidden", "contrastive_hidden", "discriminator_hidden")
        ),
        ({"width": 2**14 + 8}, "widths"),
        ({"attributes": BOTH, "protected_widths": {"age": 0}}, "widths"),
        ({"attributes": ("age", "age")}, "twice"),
        ({"attributes": BOTH, "removal_weights": {"income": 1.0}}, "income"),
        ({"attributes": BOTH, "protected_widths": {"income": 1}}, "income"),
        ({"attributes": BOTH, "removal_weights": {"age": -1.0}}, "age"),
        ({"width": 12, "heads": 8}, "multiple"),
        ({"gradient_noise": 1.0}, "gradient_clip"),
        ({"locals": {"shop": "forest"}}, "locals"),
        ({"task": "ranking", "task_cut": "server"}, "ranking"),
        ({"sweep": ()}, "sweep"),
        ({"sweep": (1.0, -1.0)}, "sweep"),
        ({"confusion": True, "mapper_step": "merged"}, "confusion"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cn.FairVFL(**changes)


def test_the_defaults_are_robust() -> None:
    config = cn.FairVFL(attributes=BOTH)
    assert config.is_robust
    assert config.unified_width == config.code_width == 8
    assert config.noise == config.code_noise > 0
    assert config.adversary_steps > 1
    assert config.adversary_rate == pytest.approx(5 * config.learning_rate)
    assert config.label_epsilon == 3.0
    assert config.mapper_step == "joint"


def test_the_papers_removal_has_neither_narrow_codes_nor_noise_nor_faster_adversaries() -> None:
    config = cn.FairVFL.paper(attributes=BOTH, learning_rate=2e-3)
    assert not config.is_robust
    assert config.unified_width == config.width == 400
    assert config.noise == config.protected_noise == 0.0
    assert config.adversary_steps == 1
    assert config.adversary_rate == config.learning_rate == 2e-3
    assert config.label_epsilon is None
    assert (config.mapper_step, config.relevance, config.scale) == ("sequential", "dot", False)


def test_attributes_have_weights_and_widths_of_their_own() -> None:
    config = cn.FairVFL(
        attributes=BOTH, removal_weight=2.0, removal_weights={"age": 0.1}, protected_widths={"gender": 7}
    )
    assert (config.weight_of("gender"), config.weight_of("age")) == (2.0, 0.1)
    assert (config.width_of("gender"), config.width_of("age")) == (7, config.protected_width)


def test_attributes_without_weight_are_only_measured() -> None:
    assert cn.FairVFL(attributes=BOTH, removal_weights={"age": 0.0}).removed == ("gender",)
    plain = cn.FairVFL(attributes=BOTH, removal_weights={"age": 5.0}).scaled(0.0)
    assert plain.removed == ()
    assert plain.attributes == BOTH


def test_weights_of_removal_can_be_scaled_together() -> None:
    config = cn.FairVFL(attributes=BOTH, removal_weight=2.0, removal_weights={"age": 0.1}).scaled(3.0)
    assert [config.weight_of(one) for one in BOTH] == pytest.approx([6.0, 0.3])


def test_attributes_are_hidden_by_randomised_answers_or_by_noise() -> None:
    assert cn.FairVFL().hides_attributes
    assert not cn.FairVFL(label_epsilon=None).hides_attributes
    assert not cn.FairVFL(label_epsilon=0.0).hides_attributes
    assert cn.FairVFL(label_epsilon=None, gradient_clip=1.0, gradient_noise=0.5).hides_attributes


def test_parties_may_have_models_of_their_own() -> None:
    config = cn.FairVFL(local="tabnet", locals={"shop": "nrms"})
    assert (config.local_of("shop"), config.local_of("telco")) == ("nrms", "tabnet")


def test_settings_cannot_be_changed_and_equal_settings_are_equal() -> None:
    config = cn.FairVFL(attributes=BOTH)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.epochs = 3  # type: ignore[misc]
    assert config == cn.FairVFL(**dataclasses.asdict(config))
