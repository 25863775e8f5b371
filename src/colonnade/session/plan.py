"""What the parties agree on before a run: the content of ``run.toml``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from colonnade.data import IdRule, Split, most_even_split, split_rows
from colonnade.errors import ConfigError, did_you_mean
from colonnade.session.seeds import derive_seed
from colonnade.settings import described
from colonnade.text import is_plain

__all__ = ["ALIGN", "SPLITS", "Alignment", "Evaluate", "RunPlan", "check_name"]

ALIGN = "align"
"""The stage that only finds the shared rows; every method has it."""
SPLITS = 64
"""In how many ways a run's seed divides the shared rows; labels may decide which one is taken."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DAY = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_LONGEST_TEXT = 500


def check_name(kind: str, name: str) -> None:
    """Refuse names that could not be a folder, a certificate subject and a log word alike."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        near = re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9._-]", "", str(name).replace(" ", "-"))[:64]
        raise ConfigError(
            f"{name!r} cannot be the name of a {kind}. Use letters, digits, '.', '_' and '-', at most 64, beginning "
            f"with a letter or digit{f', such as {near!r}' if near else ''}."
        )


@described
@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How shared rows are divided: the rest after both fractions is for training."""

    test_fraction: float = 0.2
    """Share of the shared rows held out for the final evaluation."""
    validation_fraction: float = 0.1
    """Share of the shared rows that decides when training stops, and from which score rows are called positive."""
    stratify: bool = True
    """Divide the rows so that every class has about the same share in all three parts: the label holder chooses among
    64 ways, and tells the others which. Not for numbers to predict."""
    threshold: float | None = None
    """From which score a row of two classes is called positive, in place of the rule that validation rows decide. Only
    the label holder's own file counts."""

    def __post_init__(self) -> None:
        for name in ("test_fraction", "validation_fraction"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"evaluate.{name} must be at least 0 and below 1. Got {value} instead.")
        if self.test_fraction + self.validation_fraction >= 1.0:
            raise ConfigError(
                "evaluate.test_fraction and evaluate.validation_fraction leave no rows for training. Lower one of them."
            )
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(f"evaluate.threshold must be from 0 to 1. Got {self.threshold} instead.")


@described
@dataclass(frozen=True, kw_only=True)
class Alignment(IdRule):
    """How shared rows are found, and when two ids are equal."""

    protocol: Literal["ecdh", "given"] = "ecdh"
    """`ecdh` is private set intersection; `given` takes rows that another tool has matched."""
    mode: Literal["both_learn", "one_learns", "size_only"] = "both_learn"
    """Who learns which rows are shared: all parties, the lead only, or nobody more than how many. Only the first can be
    trained on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("protocol", ("ecdh", "given")), ("mode", ("both_learn", "one_learns", "size_only"))):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"alignment.{name} must be one of {', '.join(choices)}. "
                    f"{did_you_mean(str(getattr(self, name)), choices)}"
                )


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One run as agreed by all parties."""

    name: str
    method: str
    roles: Mapping[str, tuple[str, ...]]
    """Parties by role, in the agreed order."""
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    """The method's settings, as plain JSON values with every default written out."""
    evaluate: Evaluate = field(default_factory=Evaluate)
    alignment: Alignment = field(default_factory=Alignment)
    stage: str = "train"
    after: str | None = None
    """The earlier run, in the same place, whose model this stage goes on from."""
    purpose: str | None = None
    """What the model is for, in words that all parties agreed on."""
    retention: str | None = None
    """How long the run may be kept, likewise."""

    def __post_init__(self) -> None:
        check_name("run", self.name)
        if self.after is not None:
            check_name("run", self.after)
        for party in self.parties:
            check_name("party", party)
        if len(set(self.parties)) != len(self.parties):
            raise ConfigError("A party plays two roles in run.toml. Give every party exactly one role.")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**63:
            raise ConfigError("run.seed must be a whole number from 0 to 2^63 - 1.")
        for name, text in (("purpose", self.purpose), ("retention", self.retention)):
            if text is not None and not (text.strip() and len(text) <= _LONGEST_TEXT and is_plain(text)):
                raise ConfigError(
                    f"run.{name} must be one line of plain text of at most {_LONGEST_TEXT} characters, and not empty. "
                    "Shorten it, or leave it out."
                )
        for day in _DAY.findall(self.retention or ""):
            try:
                date.fromisoformat(day)
            except ValueError:
                raise ConfigError(f"run.retention names {day}, which is no day. Write a day as 2027-01-31.") from None

    @property
    def keep_until(self) -> date | None:
        """Return the last day that the agreed retention names, if it names one."""
        return max(map(date.fromisoformat, _DAY.findall(self.retention or "")), default=None)

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all parties, by role and in the agreed order."""
        return tuple(party for parties in self.roles.values() for party in parties)

    @property
    def folder_name(self) -> str:
        """Return the name of the folder that keeps this stage: several stages of one run must not cost each other."""
        return self.name if self.stage == "train" else f"{self.name}-{self.stage}"

    def role_of(self, party: str) -> str:
        """Return the role a party plays."""
        for role, parties in self.roles.items():
            if party in parties:
                return role
        raise ConfigError(f"'{party}' plays no role in the run '{self.name}'. Add it to [run] roles.")

    @property
    def is_stratified(self) -> bool:
        """Tell whether labels may decide how rows are divided: where there may be classes, and rows are held out."""
        has_classes = self.config.get("task", "auto") in ("auto", "binary", "multiclass")
        holds_out = self.evaluate.test_fraction + self.evaluate.validation_fraction > 0
        return self.evaluate.stratify and has_classes and holds_out and self.stage not in ("predict", ALIGN)

    def split(self, count: int, number: int = 0) -> Split:
        """Divide so many shared rows, in the agreed order, in one of 64 ways, as every party of the run does."""
        seed = derive_seed(self.seed, "split", number)
        return split_rows(count, seed=seed, **self._fractions)

    def most_even_split(self, classes: npt.NDArray[np.int64]) -> int:
        """Return the number of the split in which the classes of all shared rows are spread most evenly."""
        seeds = (derive_seed(self.seed, "split", number) for number in range(SPLITS))
        return most_even_split(classes, seeds, **self._fractions)

    def at_threshold(self, threshold: float | None) -> RunPlan:
        """Return the plan with another threshold for calls, if one is given."""
        return self if threshold is None else replace(self, evaluate=replace(self.evaluate, threshold=threshold))

    @property
    def _fractions(self) -> dict[str, float]:
        return {name: getattr(self.evaluate, name) for name in ("validation_fraction", "test_fraction")}

    def fields(self) -> dict[str, str]:
        """Return every agreed setting by its dotted name, as canonical JSON."""
        document = {
            "run": {
                "name": self.name,
                "method": self.method,
                # As pairs: the order of roles is the order of peers, so it is part of what is agreed.
                "roles": [[role, list(parties)] for role, parties in self.roles.items()],
                "seed": self.seed,
                "stage": self.stage,
                "after": self.after,
                "purpose": self.purpose,
                "retention": self.retention,
            },
            # A threshold is the label holder's affair: it changes nothing that crosses.
            "evaluate": {name: value for name, value in vars(self.evaluate).items() if name != "threshold"},
            "alignment": vars(self.alignment),
            "config": dict(self.config),
        }
        return {
            f"{table}.{key}": json.dumps(value, sort_keys=True, separators=(",", ":"))
            for table, content in document.items()
            for key, value in sorted(content.items())
        }

    def digest(self) -> str:
        """Return the SHA-256 that stands for everything agreed."""
        return hashlib.sha256(json.dumps(self.fields(), sort_keys=True).encode()).hexdigest()
