"""SIGKILL in the middle of each method's training, then the same command again: the same model.

First weights and noise may come from secrets, so both runs begin as copies of one that was killed at a checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch

from colonnade.ledger import Ledger
from tests.kills.harness import NAME, Homes

Frames = dict[str, pd.DataFrame]
Document = dict[str, Any]
# What is drawn anew in every training, and digests of it.
DRAWN = ("mark", "model", "noise_key", "document_sha256", "created")


@dataclass(frozen=True)
class Case:
    """A method, its settings, and who is killed at which steps; the first party shares a channel with every other."""

    method: str
    roles: dict[str, list[str]]
    config: str
    frames: Callable[[], Frames]
    kills: tuple[tuple[list[str], int], ...]
    within: float = 0.0
    """How far tensors may be apart, where shares are rounded; 0 asks for the same bytes."""
    shares: Callable[[dict[str, Document]], list[tuple[list[str], list[str]]]] | None = None
    """Finds both sides' shares of the same weights."""

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(party for parties in self.roles.values() for party in parties)


@dataclass
class Playing(Homes):
    """The homes of one case."""

    case: Case | None = None

    def frames(self) -> Frames:
        assert self.case is not None
        return {party: frame.rename_axis("id") for party, frame in self.case.frames().items()}

    def run_file(self) -> str:
        assert self.case is not None
        roles = "\n".join(f"{role} = {json.dumps(parties)}" for role, parties in self.case.roles.items())
        about = f'[run]\nname = "{NAME}"\nmethod = "{self.case.method}"\nseed = 7\n\n[run.roles]\n{roles}\n'
        # Every step of secure_lr takes all rows, and makes a checkpoint.
        every = "" if self.case.method == "secure_lr" else "checkpoint_every = 2\n"
        return f'{about}\n[config]\n{every}key_size = "insecure_test"\n{self.case.config}'

    def tensors(self) -> dict[str, np.ndarray]:
        return {
            f"{party}/{name}": value.numpy()
            for party in self.parties
            for file in (self.run_folder(party).path / "model").glob("*.safetensors")
            for name, value in safetensors.torch.load_file(file).items()
        }

    def documents(self) -> dict[str, Document]:
        found = {}
        for party in self.parties:
            for file in (self.run_folder(party).path / "model").glob("*.json"):
                told = json.loads(file.read_text())
                found[party] = told.get("document", told)
        return found

    def finish(self, kills: tuple[tuple[list[str], int], ...]) -> None:
        for party in self.parties:
            self.start(party)
        for victims, step in kills:
            self.wait_for_step(victims[0], step)
            assert [self.kill(party) for party in victims] == [True] * len(victims)
            for party in victims:
                self.start(party)
        self.wait()
        self.check_ledgers()


def two_tables(*, with_job: bool = False) -> Frames:
    """Return a bank with labels and a shop that share some rows."""
    generator = np.random.default_rng(3)
    traits = generator.normal(size=(260, 3))
    label = np.where(traits.sum(axis=1) + 0.5 * generator.normal(size=260) > 0, "yes", "no")
    bank = pd.DataFrame(traits[:, :2], columns=["n0", "n1"]).assign(label=label)
    shop = pd.DataFrame(traits[:, 1:], columns=["m0", "m1"])
    if with_job:
        shop["job"] = generator.choice(list("abc"), len(shop))
    return {"bank": bank[:180], "shop": pd.concat([shop[:100], shop[180:]])}


def transfer_tables() -> Frames:
    """Return a source with labels and two targets about the same rows."""
    generator = np.random.default_rng(1)
    blocks = {party: generator.normal(size=(400, 3)) for party in ("bank", "shop", "telecom")}
    found = {name: pd.DataFrame(block, columns=[f"{name}{at}" for at in range(3)]) for name, block in blocks.items()}
    found["bank"]["label"] = np.where(sum(block.sum(axis=1) for block in blocks.values()) > 0, "yes", "no")
    return found


def bank_tables() -> Frames:
    """Return a data company, a source with many labels and a target with few."""
    generator = np.random.default_rng(3)
    traits = generator.normal(size=(400, 3))
    label = np.where(traits.sum(axis=1) + generator.normal(size=400) > 0, "yes", "no").astype(object)
    data = pd.DataFrame(traits, columns=["n0", "n1", "n2"]).assign(job=generator.choice(list("abc"), 400))
    banks = pd.DataFrame({"own": generator.normal(size=400), "label": label})
    target = banks[240:].copy()
    target.loc[target.index[::3], "label"] = None
    return {"data": data, "sister": banks[:240], "bank": target}


def office_tables() -> Frames:
    """Return a bank with labels, two shops, and two offices with an attribute each."""
    generator = np.random.default_rng(3)
    values = generator.normal(size=(270, 4))
    gender = values[:, 0] + 0.5 * generator.normal(size=270) > 0
    return {
        "bank": pd.DataFrame({"label": np.where(values.sum(axis=1) > 0, "yes", "no")}),
        "one": pd.DataFrame(values[:, :2], columns=["a", "b"]),
        "two": pd.DataFrame(values[:, 2:], columns=["c", "d"]),
        "state": pd.DataFrame({"gender": np.where(gender, "f", "m")}),
        "bureau": pd.DataFrame({"age": generator.normal(size=270) * 12 + 40}),
    }


# Steps: 5 in each of 3 epochs of pre-training, then 4 in each of 4 of fine-tuning.
PRADA = Case(
    "prada",
    {"feature_holder": ["data"], "source": ["sister"], "target": ["bank"]},
    """
epochs = 3
fine_epochs = 4
batch_size = 40
fine_batch_size = 20
expansion = "none"
tune = "all"
compare = "none"
pictures = false
precision = "float64"
groups = { one = ["n0", "job"], two = ["n1", "n2"] }
""",
    bank_tables,
    ((["sister"], 4), (["bank"], 8), (["data"], 16), (["data", "sister", "bank"], 22)),
    within=1e-6,
    shares=lambda documents: [
        (
            documents["bank"]["heads"]["finetune"]["share"],
            documents["data"]["banks"]["bank"]["heads"]["finetune"]["share"],
        )
    ],
)
# Steps: 5 in each of 6 epochs of each of two models.
FEDCVT = Case(
    "fedcvt",
    {"label_holder": ["bank"], "feature_holder": ["shop"]},
    """
candidates = ["fedcvt", "vanilla", "local"]
shared_width = 4
unique_width = 4
epochs = 6
batch_size = 16
own_batch_size = 24
warmup_epochs = 1
threshold = 0.5
least_keys = 3.0
precision = "float64"
""",
    lambda: two_tables(with_job=True),
    ((["shop"], 6), (["bank"], 14), (["bank", "shop"], 24), (["shop"], 36)),
)
CASES = {
    "secure_lr": Case(
        "secure_lr",
        {"label_holder": ["bank"], "feature_holder": ["shop"]},
        "epochs = 40\nallow_leak = true\ncoefficient_noise = 0.0\n",
        lambda: {party: frame for party, frame in transfer_tables().items() if party != "telecom"},
        ((["shop"], 8), (["bank"], 16), (["bank", "shop"], 24)),
    ),
    "ftl": Case(
        "ftl",
        {"source": ["bank"], "target": ["shop", "telecom"]},
        """
width = 4
hidden = [3]
iterations = 20
tolerance = 0.0
batch_size = 120
labelled_rows = 60
safeguard = false
allow_leak = true
""",
        transfer_tables,
        ((["shop"], 7), (["bank"], 12), (["bank", "shop", "telecom"], 15)),
    ),
    "prada": PRADA,
    "prada in the clear": replace(PRADA, config=f'protection = "none"{PRADA.config}', within=0.0, shares=None),
    "fedcvt": FEDCVT,
    "fedcvt level 2": replace(
        FEDCVT,
        config=f"level = 2{FEDCVT.config}",
        within=1e-3,
        shares=lambda documents: [
            (mine["share"], theirs["share"])
            for mine, theirs in zip(
                documents["shop"]["parts"]["fedcvt"]["shares"],
                documents["bank"]["parts"]["fedcvt"]["shares"][0],
                strict=True,
            )
        ],
    ),
    # Of 94 steps the first part takes 28, the second as many, and the last phase the rest.
    "mpdl": Case(
        "mpdl",
        {"label_holder": ["bank"], "feature_holder": ["shop"], "collaborator": ["helper"]},
        """
bounds = { "*" = [-6.0, 6.0] }
epsilon = 4.0
generator = "mlp"
generator_epochs = 3
generator_optimizer = "Adam"
generator_rate = 0.02
dual_weight = 0.1
dual_consent = true
folds = 3
fold_gain = 1.0
hidden = 6
epochs = 2
batch_size = 16
optimizer_options = { momentum = 0.9 }
""",
        two_tables,
        (
            (["shop"], 6),
            (["helper"], 18),
            (["bank"], 34),
            (["bank", "shop", "helper"], 44),
            (["shop"], 62),
            (["bank"], 80),
        ),
    ),
    # Twelve steps an epoch, 48 in all.
    "fairvfl": Case(
        "fairvfl",
        {
            "label_holder": ["bank"],
            "feature_holder": ["one", "two"],
            "aggregator": ["server"],
            "attribute_holder": ["state", "bureau"],
        },
        """
attributes = ["gender", "age"]
epochs = 4
batch_size = 16
width = 16
heads = 2
embedding = 4
bins = 8
task_hidden = [8]
mapper_hidden = [8]
contrastive_hidden = [8]
discriminator_hidden = [8]
gradient_clip = 0.5
gradient_noise = 0.1
""",
        office_tables,
        (
            (["one"], 6),
            (["server"], 12),
            (["state"], 18),
            (["bank"], 24),
            (["bank", "one", "two", "server", "state", "bureau"], 30),
            (["bureau"], 38),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_killed_at_any_moment_it_ends_with_the_same_model(name: str, tmp_path: Path) -> None:
    """Each kind of party, in every phase, and all at once."""
    case = CASES[name]
    whole, cut = (Playing(tmp_path / one, case.parties, case=case) for one in ("whole", "cut"))
    whole.make()
    try:
        for party in case.parties:
            whole.start(party)
        for party in case.parties:
            whole.wait_for_step(party, 2)
        assert all(whole.kill(party) for party in case.parties)
        shutil.copytree(whole.folder, cut.folder)
        whole.finish(())
        cut.finish(case.kills)
        check_same(case, whole, cut)
        for victims, _ in case.kills:
            entries = Ledger.read(cut.run_folder(victims[0]).ledger).entries
            assert sum(entry.kind == "resumed" for entry in entries) >= 2
    finally:
        whole.stop()
        cut.stop()


def check_same(case: Case, whole: Playing, cut: Playing) -> None:
    one, two = whole.tensors(), cut.tensors()
    assert one.keys() == two.keys()
    assert one
    if not case.within:
        assert all(value.tobytes() == two[name].tobytes() for name, value in one.items())
    assert max(float(np.abs(value - two[name]).max(initial=0.0)) for name, value in one.items()) <= case.within
    first, second = whole.documents(), cut.documents()
    if case.shares is not None:
        found = [
            np.array([int(a) + int(b) for mine, theirs in case.shares(each) for a, b in zip(mine, theirs, strict=True)])
            for each in (first, second)
        ]
        assert np.abs(found[0] - found[1]).max() < case.within * 2.0**48
    else:
        for documents in (first, second):
            marks = {document[key] for document in documents.values() for key in ("mark", "model") if key in document}
            assert len(marks) <= 1, "all parts are of one model"
            for document in documents.values():
                document.update(dict.fromkeys(DRAWN, ""))
        assert first == second
