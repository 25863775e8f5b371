from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.session.toys import Play

from colonnade.errors import CheckpointBroken
from colonnade.session import MetricsLog, ModelPart, derive_seed, highest_common, write_json, write_whole


def test_seeds_differ_by_seed_purpose_and_counter() -> None:
    made = {
        derive_seed(seed, purpose, counter)
        for seed in (0, 1, 7, 77)
        for purpose in ("batches", "split", "encoder", "encoder/bank", "a/1", "a")
        for counter in range(50)
    }
    assert len(made) == 4 * 6 * 50
    assert all(0 <= one < 2**63 for one in made)


def test_a_derived_seed_is_known() -> None:
    """Changing this changes every model trained from a given seed."""
    assert derive_seed(7, "batches", 3) == 3369115978757288011


def test_seeds_look_independent() -> None:
    """Neighbouring counters and purposes share no more bits than chance has them share."""
    for left, right in (("a", "b"), ("a", "a")):
        same = sum(
            64 - (derive_seed(7, left, one) ^ derive_seed(7, right, one + 1)).bit_count() - 1 for one in range(1000)
        )
        assert abs(same / 63_000 - 0.5) < 0.01


def test_shared_seeds_are_shared_and_own_seeds_are_not() -> None:
    played = Play(("bank", "shop", "telco"))
    played.run()
    sessions = played.sessions.values()
    assert len({session.seed("batches", 3) for session in sessions}) == 1
    assert len({session.own_seed("encoder") for session in sessions}) == 3
    assert (
        len({session.own_seed("dropout", 1) for session in sessions} | {one.seed("dropout", 1) for one in sessions})
        == 4
    )


def sample() -> ModelPart:
    tensors = {"w": torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), "half": torch.ones(2).half()}
    return ModelPart(tensors, {"epoch": 3, "names": ["x", "é"], "best": 0.1, "nested": {"a": None}, "pair": (1, 2)})


def test_a_part_comes_back_as_it_was(tmp_path: Path) -> None:
    sample().save(tmp_path / "new" / "folder")
    back = ModelPart.load(tmp_path / "new" / "folder")
    assert back.document == {**sample().document, "pair": [1, 2]}
    assert back.tensors.keys() == sample().tensors.keys()
    assert all(torch.equal(back.tensors[name], value) for name, value in sample().tensors.items())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "new" / "folder").iterdir())


def test_every_changed_bit_of_the_tensors_is_found(tmp_path: Path) -> None:
    sample().save(tmp_path)
    path = tmp_path / "part.safetensors"
    content = path.read_bytes()
    rng = random.Random(0)
    for _ in range(200):
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(CheckpointBroken):
            ModelPart.load(tmp_path)
    for changed in (b"", content[:-1], content + b"\x00"):
        path.write_bytes(changed)
        with pytest.raises(CheckpointBroken):
            ModelPart.load(tmp_path)


def test_every_changed_value_of_the_document_is_found(tmp_path: Path) -> None:
    sample().save(tmp_path)
    path = tmp_path / "part.json"
    document = json.loads(path.read_text())
    for name in document:
        for value in (4, "other", None, [], {"format": 1}):
            if document[name] != value:
                path.write_text(json.dumps({**document, name: value}))
                with pytest.raises(CheckpointBroken):
                    ModelPart.load(tmp_path)
        path.write_text(json.dumps({key: value for key, value in document.items() if key != name}))
        with pytest.raises(CheckpointBroken):
            ModelPart.load(tmp_path)
    path.write_text(json.dumps({**document, "more": 1}))
    with pytest.raises(CheckpointBroken):
        ModelPart.load(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"3", b"\xff\xfe", b'{"format": 2}', b'{"format": true}']
)
def test_a_document_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    sample().save(tmp_path)
    (tmp_path / "part.json").write_bytes(content)
    with pytest.raises(CheckpointBroken):
        ModelPart.load(tmp_path)


@pytest.mark.parametrize("name", ["part.json", "part.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    sample().save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointBroken, match=name):
        ModelPart.load(tmp_path)


def test_two_parts_cannot_be_mixed(tmp_path: Path) -> None:
    sample().save(tmp_path, "one")
    ModelPart({"w": torch.zeros(3)}).save(tmp_path, "two")
    (tmp_path / "one.safetensors").write_bytes((tmp_path / "two.safetensors").read_bytes())
    with pytest.raises(CheckpointBroken, match="digest"):
        ModelPart.load(tmp_path, "one")


def test_a_pickle_is_not_loaded_as_a_part(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, tmp_path / "part.safetensors")
    content = (tmp_path / "part.safetensors").read_bytes()
    sample().save(tmp_path)
    document = json.loads((tmp_path / "part.json").read_text())
    import hashlib

    (tmp_path / "part.safetensors").write_bytes(content)
    (tmp_path / "part.json").write_text(json.dumps({**document, "sha256": hashlib.sha256(content).hexdigest()}))
    with pytest.raises(CheckpointBroken, match="safetensors"):
        ModelPart.load(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("colonnade.session.files.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_json_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})


def test_the_highest_common_step_is_found() -> None:
    assert highest_common([(2, 4, 6)]) == 6
    assert highest_common([(2, 4, 6), (2, 4), (1, 2, 4, 9)]) == 4
    assert highest_common([(2,), (4,)]) is None
    assert highest_common([(), (4,)]) is None
    assert highest_common([(0,), (0, -1, 2**200)]) == 0


def test_metrics_are_rewound_to_a_step_and_a_torn_line_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(1, 5):
        log.record("train", step, {"loss": step / 3})
    log.record("other", 9, {"loss": 1.0})
    path.write_bytes(path.read_bytes() + b'{"time": "2026')
    again = MetricsLog(path)
    assert again.lines == log.lines
    again.rewind("train", 2)
    assert [(line["stage"], line["step"]) for line in MetricsLog(path).lines] == [
        ("train", 1),
        ("train", 2),
        ("other", 9),
    ]
    again.record("train", 3, {"loss": 0.5})
    assert MetricsLog(path).lines == again.lines
    path.write_bytes(b"not json\n" + path.read_bytes())
    with pytest.raises(CheckpointBroken, match="damaged"):
        MetricsLog(path)
