"""What is recorded: every method with each of its protections and defences, in each of its stages, on toy sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import colonnade as cn
from tests.recorder.compare import ELSEWHERE
from tests.unit.methods.fairvfl import worlds as fairvfl
from tests.unit.methods.fedcvt import worlds as fedcvt
from tests.unit.methods.ftl import worlds as ftl
from tests.unit.methods.mpdl import graph_worlds
from tests.unit.methods.mpdl import worlds as mpdl
from tests.unit.methods.prada import worlds as prada

Frames = dict[str, pd.DataFrame]
SPLIT = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2, stratify=False)


def _unstratified(evaluate: cn.Evaluate) -> cn.Evaluate:
    """Return how rows are divided, so that labels have no say in it: what was recorded is of such splits."""
    return replace(evaluate, stratify=False)


@dataclass(frozen=True)
class Variant:
    """One method with settings, a world to play in, and the stages to play one after the other."""

    method: str
    name: str
    config: Any
    frames: Callable[[], Mapping[str, Any]]
    """Makes tables by party: frames, or party tables where they have links."""
    roles: Mapping[str, str | tuple[str, ...]]
    stages: tuple[str, ...] = ("train", "predict")
    evaluate: cn.Evaluate = SPLIT
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parties that bring no table to a stage, by stage."""
    within: float = 0.0
    """How far numbers may be apart where shares of them are drawn anew in every run; 0 asks for the same bits."""
    elsewhere: float = ELSEWHERE
    """How far they may be apart on another machine, in parts of the largest; more where rounding is amplified."""
    drawn_anew: tuple[str, ...] = ()
    """Stages whose numbers come from the operating system's generator, so that they have the same shapes only."""

    def __str__(self) -> str:
        return f"{self.method}: {self.name}"

    def tables(self, stage: str) -> dict[str, cn.PartyTable]:
        """Return the tables that parties bring to a stage; those to predict have no labels."""
        found = {party: one for party, one in self.frames().items() if party not in self.absent.get(stage, ())}
        return {
            party: one if isinstance(one, cn.PartyTable) else self._table(party, one, stage)
            for party, one in found.items()
        }

    def roles_in(self, stage: str) -> dict[str, tuple[str, ...]]:
        """Return who plays which role in a stage."""
        absent = self.absent.get(stage, ())
        named = {role: (names,) if isinstance(names, str) else names for role, names in self.roles.items()}
        kept = {role: tuple(one for one in names if one not in absent) for role, names in named.items()}
        return {role: names for role, names in kept.items() if names}

    def _table(self, party: str, frame: pd.DataFrame, stage: str) -> cn.PartyTable:
        # What a matrix product makes of the same draws differs in the last bits from one machine to another.
        frame = frame.round(6)
        if stage == "predict":
            frame = frame.drop(columns="y", errors="ignore")
        label = "y" if "y" in frame else None
        unlabelled = label is not None and bool(frame[label].isna().any())
        return cn.PartyTable(frame, id="id", label=label, name=party, unlabelled=unlabelled)


def _joint_frames(task: str = "binary", parties: int = 2, rows: int = 60) -> Frames:
    """Return tables about the same rows: a bank's with labels, and others with numbers and a category each."""
    draw = np.random.default_rng(3)
    names = ("bank", "shop", "telco")[:parties]
    blocks = {name: draw.normal(size=(rows, 3)) for name in names}
    signal = sum(block @ [1.0, -0.7, 0.4] for block in blocks.values()) + 0.1 * draw.normal(size=rows)
    labels = {
        "binary": (signal > 0).astype(int),
        "multiclass": np.digitize(signal, [-0.8, 0.8]),
        "regression": signal * 4 + 2,
    }[task]
    found = {}
    for place, (name, block) in enumerate(blocks.items()):
        frame = pd.DataFrame(block * 3 + 7, columns=[f"{name}{column}" for column in range(3)])
        frame["kind"] = np.where(block[:, 0] + block[:, 1] > 0, "one", "other")
        frame.loc[::11, f"{name}2"] = np.nan
        frame["id"] = np.arange(rows) + place * 2
        found[name] = frame.assign(y=labels) if name == "bank" else frame
    return {name: frame.sample(frac=1, random_state=place) for place, (name, frame) in enumerate(found.items())}


def _roles(parties: int) -> dict[str, str | tuple[str, ...]]:
    others = ("shop", "telco")[: parties - 1]
    return {"label_holder": "bank", **({"feature_holder": others} if others else {})}


def _splitnn(name: str, labels: str = "binary", parties: int = 2, rows: int = 60, **changes: Any) -> Variant:
    small: dict[str, Any] = {
        "hidden": (4,),
        "cut_width": 3,
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 0.02,
        "secret_start": False,
        "minimum_steps": 0,
    }
    config = cn.SplitNN(**small | changes)
    return Variant("splitnn", name, config, lambda: _joint_frames(labels, parties, rows), _roles(parties))


def _secure_lr(name: str, labels: str = "binary", parties: int = 2, **changes: Any) -> Variant:
    small: dict[str, Any] = {
        "epochs": 2,
        "minimum_support": 2,
        "coefficient_noise": 0.0,
        "allow_leak": True,
        "key_size": "insecure_test",
    }
    config, within = cn.SecureLR(**small | changes), 1e-6 if parties > 1 else 0.0
    # Three parties' scores of two epochs are far from settled, so that another machine's rounding shows.
    elsewhere = 0.02 if parties > 2 else ELSEWHERE
    frames = partial(_joint_frames, labels, parties)
    return Variant("secure_lr", name, config, frames, _roles(parties), within=within, elsewhere=elsewhere)


def _ftl(
    name: str, *stages: str, sources: int = 1, targets: int = 1, labels: str = "binary", **changes: Any
) -> Variant:
    shared = changes.pop("shared", 40)
    banks, shops = (tuple(f"{one}{i}" for i in range(count)) for one, count in (("bank", sources), ("shop", targets)))
    config = ftl.settings(**{"iterations": 3, "folds": 2, "allow_leak": True} | changes)
    return Variant(
        "ftl",
        name,
        config,
        lambda: ftl.frames(labels, sources=sources, targets=targets, shared=shared, own=8),
        {"source": banks, "target": shops},
        stages or ("train", "predict"),
        absent={"predict": banks},
        drawn_anew=("train", "predict") if config.noise else (),
    )


def _prada(
    name: str, *stages: str, sources: int = 1, targets: int = 1, labels: str = "binary", **changes: Any
) -> Variant:
    banks, sisters = (
        tuple(f"{one}{i}" for i in range(count)) for one, count in (("bank", targets), ("sister", sources))
    )
    small: dict[str, Any] = {"epochs": 1, "fine_epochs": 2, "interactions": False, "widths": {"a": (3,), "b": (3,)}}
    config = prada.settings(**small | changes)
    rows = {"source_rows": 40, "target_rows": 36, "labelled": 28}
    return Variant(
        "prada",
        name,
        config,
        lambda: prada.frames(labels, sources=sources, targets=targets, **rows),
        {"feature_holder": prada.HOLDER, "target": banks, "source": sisters},
        stages or ("train", "predict"),
        absent=dict.fromkeys(("finetune", "explain", "predict"), sisters),
        within=1e-5 if config.is_sealed else 0.0,
    )


def _fedcvt(name: str, labels: str = "multiclass", parties: int = 2, **changes: Any) -> Variant:
    config = fedcvt.settings(**{"epochs": 2, "shared_width": 3, "unique_width": 3} | changes)
    return Variant(
        "fedcvt",
        name,
        config,
        lambda: fedcvt.frames(labels, parties, shared=40, own={"bank": 20, "shop": 12, "telco": 10}),
        _roles(parties),
        within=1e-5 if config.is_sealed else 0.0,
        drawn_anew=("predict",) if config.is_noised else (),
    )


def _mpdl(name: str, *stages: str, parties: int = 2, labels: str = "binary", **changes: Any) -> Variant:
    config = mpdl.settings(**{"hidden": 4, "generator_epochs": 2} | changes)
    return Variant(
        "mpdl",
        name,
        config,
        lambda: mpdl.frames(labels, parties, shared=36, own={"bank": 16, "shop": 10, "telco": 8}),
        mpdl.roles_of(parties),
        stages or ("train", "predict"),
        within=1e-6 if config.exchange == "interactive" and config.dual_is_on else 0.0,
    )


def _pictured(name: str, **changes: Any) -> Variant:
    small = {"image": (1, 6, 6), "channels": (2, 3), "kernel_size": 3, "dense": (4,), "bounds": {"*": (0.0, 1.0)}}
    config = mpdl.settings(**small | {"epochs": 1} | changes)
    return Variant("mpdl", name, config, mpdl.pictures, mpdl.roles_of(2), evaluate=_unstratified(mpdl.TESTED))


def _graph(name: str, **changes: Any) -> Variant:
    config = graph_worlds.settings(**{"epochs": 2, "hidden": 4} | changes)
    world = graph_worlds.graph_world(shared=24, b_only=8, a_only=7)
    return Variant(
        "mpdl", name, config, world.tables, graph_worlds.ROLES, ("graph",), _unstratified(graph_worlds.EVALUATE)
    )


def _fairvfl(name: str, *stages: str, labels: str = "binary", **changes: Any) -> Variant:
    config = fairvfl.settings(**{"epochs": 1, "precision": "float64"} | changes)
    without = () if config.attributes else ("state", "bureau")
    return Variant(
        "fairvfl",
        name,
        config,
        lambda: fairvfl.texts() if config.task == "ranking" else fairvfl.frames(labels, rows=64),
        fairvfl.ROLES,
        stages or ("train", "predict"),
        _unstratified(fairvfl.TESTED),
        absent={"train": without, "predict": ("state", "bureau")},
    )


_PAIRED: dict[str, Any] = {"interactions": True, "widths": {"a": (3,), "b": (3,), "a-b": (4,)}}
_SEALED = {"level": 2, "sealed_pull": "one_sided", "least_keys": 0.0}
_STEPWISE = {"generator": "mlp", "exchange": "interactive", "dual_consent": True}

# Those named "choices" hold settings that protect nothing, so that the others stay as they are when one of these goes.
VARIANTS = (
    _splitnn("in the clear"),
    replace(_splitnn("rows divided by labels"), evaluate=replace(SPLIT, stratify=True)),
    _splitnn("alone", parties=1),
    _splitnn("three parties, dropout", "multiclass", 3, head_hidden=(4,), dropout=0.2),
    _splitnn("numbers", "regression", optimizer="SGD", patience=1),
    _splitnn("secret start", secret_start=True),
    _splitnn("the average serves", rows=180),
    _splitnn("own columns serve", "regression", rows=180, learning_rate=1e-6),
    _splitnn("marvell", defence="marvell"),
    _splitnn("coae", "multiclass", defence="coae"),
    _splitnn("marvell and coae", defence="marvell+coae"),
    _splitnn(
        "choices: double precision, ahead",
        task="binary",
        precision="float64",
        class_weights="balanced",
        look_ahead=2,
    ),
    _splitnn("choices: class weights", "multiclass", task="multiclass", class_weights=(1.0, 2.0, 3.0)),
    _splitnn("choices: passes", "regression", task="regression", patience=0, minimum_steps=30, schedule="cosine"),
    _secure_lr("no noise"),
    _secure_lr("alone", parties=1),
    _secure_lr("three classes, three parties", "multiclass", 3, task="multiclass"),
    _secure_lr("numbers", "regression", task="regression", epochs=3),
    _secure_lr("noised coefficients", coefficient_noise=1.0),
    _secure_lr("as shipped", task="binary", epochs=0, coefficient_noise=1.0, allow_leak=False),
    _ftl("in the clear", "train", "predict", "validate", protection="none"),
    _ftl("paillier", "train", "predict", "validate"),
    _ftl("in the clear, safeguard", protection="none", safeguard=True, margin=-1.0),
    _ftl("paillier, safeguard", safeguard=True, margin=1.0),
    _ftl("paillier, dot, squared, layers", alignment="dot", loss="squared", hidden=(4,), trained_layers=1),
    _ftl("paillier, rows revealed", reveal="rows", pretrain_epochs=1),
    _ftl("paillier, noise", noise=0.05),
    _ftl("paillier, secret start, batches", secret_start=True, batch_size=16),
    _ftl("paillier, three classes, two targets", labels="multiclass", targets=2),
    _ftl("in the clear, numbers, two sources", protection="none", labels="regression", sources=2),
    _ftl("paillier, two sources", sources=2, labelled_rows=20),
    _ftl("paillier, guarded", task="binary", allow_leak=False, shared=72),
    _ftl("choices: tanh", protection="none", labels="multiclass", task="multiclass", activation="tanh", loss_every=0),
    _ftl(
        "choices: weighted sources",
        protection="none",
        labels="regression",
        task="regression",
        sources=2,
        source_weights={"bank1": 0.5},
        optimizer="SGD",
    ),
    _prada("in the clear", "train", "explain", "predict", protection="none", explanations=True, **_PAIRED),
    _prada("paillier", "train", "explain", "predict", explanations=True, **_PAIRED),
    _prada(
        "in the clear, two stages", "pretrain", "finetune", "explain", "predict", protection="none", explanations=True
    ),
    _prada("paillier, two stages", "pretrain", "finetune", "predict"),
    _prada("in the clear, all tuned, compared", protection="none", tune="all", compare="vfl"),
    _prada("paillier, all tuned, compared", tune="all", compare="vfl", optimizer="SGD"),
    _prada("in the clear, unseen tuned", protection="none", tune="unseen", tie_unseen=True, compare="local"),
    _prada("paillier, unseen tuned, novelties", tune="unseen", tie_unseen=True, novelties=1),
    _prada("in the clear, marvell", protection="none", defence="marvell", tune="all"),
    _prada("paillier, marvell", defence="marvell", tune="all"),
    _prada("in the clear, coae", protection="none", defence="coae", tune="all"),
    _prada("paillier, marvell and coae", defence="marvell+coae", tune="all"),
    _prada("paillier, secret start", secret_start=True),
    _prada("in the clear, three classes, two banks each", protection="none", labels="multiclass", sources=2, targets=2),
    _prada("paillier, numbers, no source", labels="regression", sources=0, tune="all"),
    _prada(
        "in the clear, ungrouped, defaults",
        protection="none",
        grouped=False,
        widths={},
        expansion="steps",
        domain_sampling="density",
        weight_average=0.9,
        dropout=0.1,
        pictures=True,
    ),
    _prada(
        "choices: paper",
        protection="none",
        labels="multiclass",
        task="multiclass",
        batch_norm="separate",
        schedule="paper",
        precision="float32",
        optimizer="SGD",
        shared_tables=(("c0", "c1"),),
        patience=1,
        fine_patience=1,
    ),
    _prada("choices: no adaptation", protection="none", task="binary", adaptation=False, aggregate=2, dropout=0.0),
    _prada("choices: numbers", protection="none", labels="regression", task="regression", schedule="constant"),
    _fedcvt("level 0", patience=1, candidates=("fedcvt", "vanilla", "local")),
    _fedcvt(
        "level 0, all candidates, three parties",
        "binary",
        3,
        candidates=("fedcvt", "wide", "mean_fill", "mftl", "ftl", "local"),
        memory_bank=16,
    ),
    _fedcvt("level 0, numbers, no answers", "regression", partner_answers="none", hidden=(3,)),
    _fedcvt("level 0, marvell", "binary", defence="marvell"),
    _fedcvt("level 0, secret start", secret_start=True),
    _fedcvt("level 1", level=1, noise=0.2),
    _fedcvt("level 1, marvell", "binary", level=1, noise=0.2, defence="marvell"),
    _fedcvt("level 2", **_SEALED),
    _fedcvt("level 2, three parties, without fit", "binary", 3, level=2, sealed_fit="off", least_keys=0.0),
    _fedcvt("level 2, secret start", **_SEALED, secret_start=True),
    _fedcvt(
        "choices: tanh",
        task="multiclass",
        activation="tanh",
        orthogonality="gram",
        pair_reduction="mean",
        attention="anchored",
        detached=True,
        self_mask=False,
        gradient_clip=1.0,
        weight_decay=0.01,
        precision="float32",
    ),
    _fedcvt("choices: sigmoid", "binary", task="binary", activation="sigmoid", orthogonality="dsn", unique_width=2),
    _fedcvt("choices: gelu", "regression", task="regression", activation="gelu", codes="shared", pseudo_labels=False),
    _fedcvt("choices: no estimates", codes="unique", estimate=False, cross_view=False, pseudo_labels=False),
    _fedcvt("choices: images", images={"shop": (1, 2, 2)}, channels=(2,)),
    _mpdl("nothing hidden", mechanism="none"),
    _mpdl("noise by cell"),
    _mpdl("noise by row, folds, three parties", parties=3, mechanism="row_gaussian", folds=2, labels="multiclass"),
    _mpdl("lemma", mechanism="lemma", paper_mode=True, generator="mean"),
    _mpdl("shared lemma on everything", mechanism="lemma_shared", paper_mode=True, dp_scope="all", augment=False),
    _mpdl("perceptron with dual penalty", generator="mlp", dual_weight=0.005, dual_consent=True),
    _mpdl("step by step", **_STEPWISE),
    _mpdl("step by step with dual penalty", **_STEPWISE, dual_weight=0.005),
    _mpdl("step by step, nothing hidden", "dual", **_STEPWISE, mechanism="none"),
    _mpdl("shipped, numbers", completion="ship", labels="regression"),
    _mpdl("secure block", completion="secure_block", block_consent=True),
    _mpdl("two stages", "dual", "central", "predict", generator="mlp"),
    _mpdl("secret start, strict folds", secret_start=True, folds=2, strict_folds=True),
    _mpdl(
        "choices: conditional",
        generator="mlp",
        dual_weight=0.005,
        dual_consent=True,
        dual_form="gaussian_conditional",
        dual_scale="raw",
        task="binary",
        precision="float32",
    ),
    _mpdl("choices: residual", labels="multiclass", task="multiclass", completed_weight="residual", dense=(3,)),
    _mpdl("choices: numbers", labels="regression", task="regression", optimizer="Adam", epsilons={"bank0": 5.0}),
    _pictured("pictures"),
    _pictured("pictures with tied kernels", kernels="tied"),
    _graph("graph under encryption"),
    _graph("graph with noised links", links="edge_ldp", mechanism="cell_ldp", suggested_links=2),
    _graph("graph with confusion", links="confusion", paper_mode=True),
    _graph("choices: sums", graph_rows="sums"),
    _fairvfl("robust", "train", "predict", "audit"),
    _fairvfl(
        "paper",
        "train",
        "predict",
        "audit",
        removal="paper",
        mapper_step="sequential",
        protected_noise=0.0,
        label_epsilon=None,
    ),
    _fairvfl(
        "at the server, merged, counts with noise",
        "train",
        "predict",
        "audit",
        task_cut="server",
        mapper_step="merged",
        count_epsilon=1.0,
    ),
    _fairvfl(
        "noised gradients, confusion", gradient_clip=1.0, gradient_noise=0.5, confusion=True, aggregation="concat_mlp"
    ),
    _fairvfl("secret start", secret_start=True),
    _fairvfl("plain", attributes=()),
    _fairvfl("ranking of texts", local="nrms", task="ranking"),
    _fairvfl("sweep", "sweep", sweep=(0.0, 1.0)),
    _fairvfl(
        "choices: autoint",
        "train",
        "audit",
        labels="multiclass",
        task="multiclass",
        local="autoint",
        locals={"one": "mlp"},
        relevance="dot",
        scale=False,
        safeguard=False,
        audit_plain=False,
        precision="float32",
    ),
    _fairvfl("choices: tabnet", labels="regression", task="regression", local="tabnet", adversary_every=2),
    _fairvfl("choices: naml", local="naml", task="ranking", dropout=0.0),
    _fairvfl("choices: lstur", local="lstur", task="ranking", locals={"two": "nrms"}),
    _fairvfl("choices: one attribute", task="binary", removal_weights={"age": 0.0}, protected_widths={"gender": 2}),
)
