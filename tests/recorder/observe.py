"""Play a variant and describe what crossed and what came out, in a form that can be kept."""

from __future__ import annotations

import base64
import hashlib
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade as cn
from colonnade import alignment
from colonnade.messages import declaration_of
from colonnade.session import CONTROL, Session
from tests.recorder.variants import Variant
from tests.worlds import integers_for_ciphertexts

Recorded = dict[str, Any]
"""By stage: ``messages`` by channel and ``numbers`` by name, as JSON values."""

SEED = 11
# So many numbers of an array are kept as they are, and of a longer one so many sums with fixed weights: few where its
# digest is kept as well, many where shares are drawn anew and there is none.
_FEW, _MOST = 3, 32
_GOES_ON = ("finetune", "explain", "audit", "central")
_NO_METHODS = {declaration_of(one).name for one in (*CONTROL, *alignment.MESSAGES)}


def environment() -> dict[str, str]:
    """Return what the last bits of numbers depend on: only where it is the same can digests be compared."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else platform.processor()
    facts = [line for line in cpu.split("\n\n")[0].splitlines() if line.startswith(("model", "cpu family", "flags"))]
    return {
        **{name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")},
        "machine": platform.machine(),
        "cpu": hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": "1",
    }


def observe(variant: Variant) -> Recorded:
    """Play the stages of a variant one after the other."""
    return {stage: play() for stage, play in stages_of(variant)}


def stages_of(variant: Variant) -> Iterator[tuple[str, Callable[[], Recorded]]]:
    """Give what plays each stage with the model of those before it, once or again."""
    models: list[cn.Run] = []
    for stage in variant.stages:
        yield stage, partial(_play, variant, stage, models[-1] if models else None, models)


def _play(variant: Variant, stage: str, model: cn.Run | None, models: list[cn.Run]) -> Recorded:
    with _watched() as sessions:
        if stage == "predict":
            assert model is not None
            values = _scores(model.predict(variant.tables(stage)))
        else:
            run = cn.simulate(
                variant.config,
                variant.tables(stage),
                seed=SEED,
                roles=variant.roles_in(stage),
                stage=stage,
                after=model if stage in _GOES_ON else None,
                evaluate=variant.evaluate,
                launch=cn.Launch(name=stage),
            )
            values = _results(run)
            if run.parts:
                models.append(run)
    return {
        "messages": _messages(sessions),
        "numbers": {name: described(value, variant, stage) for name, value in values.items()},
    }


@contextmanager
def _watched() -> Iterator[list[Session]]:
    """Give parties the same secrets in every run, ciphertexts that are plain integers, and keep their sessions."""
    sessions: list[Session] = []
    begin, threads = Session.__init__, torch.get_num_threads()

    def begun(session: Session, *arguments: Any, **options: Any) -> None:
        begin(session, *arguments, **options)
        sessions.append(session)

    def secret(session: Session, purpose: str) -> bytes:
        return hashlib.sha256(f"{session.stage}/{session.party}/{purpose}".encode()).digest()

    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        patch.setattr(Session, "__init__", begun)
        patch.setattr(Session, "secret", secret)
        torch.set_num_threads(1)
        try:
            yield sessions
        finally:
            torch.set_num_threads(threads)


def _results(run: cn.Run) -> dict[str, np.ndarray]:
    """Return every party's tensors, and the numbers of metrics and findings."""
    found = {f"{party}/{name}": one.numpy() for party, part in run.parts.items() for name, one in part.tensors.items()}
    found |= {f"finding/{name}": np.array(_leaves(one.values)) for name, one in run.findings.items()}
    return found | {f"metrics/{name}": np.array(_leaves(one.metrics)) for name, one in run.evaluations.items()}


def _scores(scores: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return scores and predictions; names become their places in the alphabet."""
    columns = {f"scores/{name}": scores[name].to_numpy() for name in scores.columns if name != "id"}
    return {
        name: values if values.dtype.kind in "biuf" else np.unique(values.astype(str), return_inverse=True)[1]
        for name, values in columns.items()
    }


def _leaves(value: Any) -> list[float]:
    """Return all numbers in JSON values."""
    if isinstance(value, Mapping):
        return [leaf for name in sorted(value) for leaf in _leaves(value[name])]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _leaves(one)]
    return [float(value)] if isinstance(value, int | float) else []


def described(value: np.ndarray, variant: Variant, stage: str) -> str:
    """Return an array's type and shape, numbers where it repeats at all, and a digest where it does so bit for bit."""
    kind = f"{'' if value.dtype == np.float64 else value.dtype}[{','.join(map(str, value.shape))}]"
    if stage in variant.drawn_anew:
        return kind
    kept, most = np.nan_to_num(value.astype(np.float64).ravel(), nan=-7.0), _MOST if variant.within else _FEW
    if kept.size > most:
        weights = np.cos(np.outer(np.arange(1, most + 1), np.arange(1, kept.size + 1)))
        kept = weights @ kept / math.sqrt(kept.size)
    said = f"{kind} {base64.b64encode(kept.astype('<f4').tobytes()).decode()}"
    return said if variant.within else f"{said} {hashlib.sha256(value.tobytes()).hexdigest()[:8]}"


def _messages(sessions: list[Session]) -> dict[str, list[str]]:
    """Return by channel what crossed, in the order in which the first of both parties saw it."""
    found: dict[str, list[str]] = {}
    for session in sessions:
        parties = session.plan.parties
        crossed: dict[str, list[tuple[str, int]]] = {}
        for entry in session.ledger.read().messages():
            about = entry.content
            if about["message"] in _NO_METHODS or parties.index(session.party) > parties.index(about["peer"]):
                continue
            kind = f"{'>' if entry.kind == 'sent' else '<'} {about['message']} {about['protection']}"
            if about["shapes"]:
                shapes = " ".join(f"{name}[{','.join(map(str, one))}]" for name, one in about["shapes"].items())
                kind += f" {about['bytes']} {shapes}"
            crossed.setdefault(f"{session.party}-{about['peer']}", []).append((kind, about["bytes"]))
        found |= {channel: _with_sizes(ones) for channel, ones in crossed.items()}
    return dict(sorted(found.items()))


def _with_sizes(crossed: list[tuple[str, int]]) -> list[str]:
    """Add sizes where there are no arrays: the mean of all messages of a kind in a channel.

    Whole numbers take as many bytes as they need, so that shares of weights are now longer and now shorter.
    """
    sizes: dict[str, list[int]] = {}
    for kind, size in crossed:
        sizes.setdefault(kind, []).append(size)
    means = {kind: round(sum(own) / len(own)) for kind, own in sizes.items()}
    return [kind if "[" in kind else f"{kind} ~{means[kind]}" for kind, _ in crossed]
