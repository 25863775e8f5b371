"""Known answers: what these bytes are must not change by accident.

When the wire or the ledger changes on purpose, raise the version, then rewrite the files with
``python -m tests.vectors.test_vectors``.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import alignment
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    DeclaredFormat,
    GivenRows,
    IdMarks,
    SharedCount,
    SharedRows,
    ShuffledMarks,
    TwiceBlindedIds,
)
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.ledger import GENESIS, Ledger
from colonnade.ledger.entries import chain
from colonnade.messages import PLAIN, declaration_of, decode_body, message, open_frame, record, seal
from colonnade.methods.splitnn import METHOD
from colonnade.methods.splitnn.messages import CutActivations, CutWidth
from colonnade.session import CONTROL
from colonnade.session.control import Failed, Finished, Goodbye, HeldCheckpoints, ResumeFrom

HERE = Path(__file__).parent
CONTEXT = bytes.fromhex("00112233445566778899aabbccddeeff")


@record
class Part:
    name: str
    numbers: tuple[int, ...]


@message(sender="one", receiver="other", protection=PLAIN, step="vector")
class Vector:
    """One of each kind. Reveals: all of it."""

    flag: bool
    count: int
    ratio: float
    blob: bytes
    text: str
    array: np.ndarray
    tensor: torch.Tensor
    maybe: int | None
    parts: tuple[Part, ...]


FORMAT = DeclaredFormat(True, "some", 1, 12, 1, 9, False, True, False, True, ("hyphens", "dots"), "lower", True, 2)
SAMPLES: dict[str, Any] = {
    "Vector": Vector(
        flag=True,
        count=-(2**64) - 1,
        ratio=-0.1,
        blob=b"\x00\x01\x02",
        text="Zürich 東京",
        array=np.array([[1, -2, 3], [-4, 5, -6]], dtype=">i2"),
        tensor=torch.tensor([0.5, -1.25], dtype=torch.float32),
        maybe=None,
        parts=(Part("a", (0, 127, 128, -128, -129)), Part("", ())),
    ),
    "CutWidth": CutWidth(32),
    "CutActivations": CutActivations(torch.tensor([[1.0, 2.0], [3.0, 4.0]])),
    "EpochVerdict": EpochVerdict(True, False),
    "HeldCheckpoints": HeldCheckpoints((5, 300)),
    "ResumeFrom": ResumeFrom(300),
    "Failed": Failed("bank", 3, "the loss is no longer a number.", False),
    "Finished": Finished(),
    "AlignmentOffer": AlignmentOffer(300, bytes(32), FORMAT, (bytes(range(16)),), bytes(32), 7),
    "AlignmentOpening": AlignmentOpening(2**32, bytes(range(32)), FORMAT, None, 7),
    "BlindedIds": BlindedIds(np.arange(66, dtype=np.uint8).reshape(2, 33)),
    "TwiceBlindedIds": TwiceBlindedIds(np.arange(66, dtype=np.uint8).reshape(2, 33)),
    "IdMarks": IdMarks(np.arange(24, dtype=np.uint8).reshape(2, 12)),
    "ShuffledMarks": ShuffledMarks(np.arange(24, dtype=np.uint8).reshape(2, 12)),
    "SharedRows": SharedRows(np.arange(36, dtype=np.uint8).reshape(3, 12), bytes(range(16))),
    "SharedCount": SharedCount(300),
    "GivenRows": GivenRows(300, bytes(range(32))),
    "Goodbye": Goodbye(bytes(range(32)), bytes(range(32, 64))),
}
LEDGER = [
    {"index": 0, "time": "2026-01-01T00:00:00.000000+00:00", "kind": "opened", "party": "bank", "digest": "ab" * 32},
    {"index": 1, "time": "2026-01-01T00:00:01.000000+00:00", "kind": "failed", "cause": 'Zürich 東京 \u001b "quoted"'},
    {"index": 2, "time": "2026-01-01T00:00:02.000000+00:00", "kind": "closed", "step": 7},
]


def made_frames() -> dict[str, str]:
    return {
        name: b"".join(seal(declaration_of(one), one, context=CONTEXT, sequence=3, step=258)[1]).hex()
        for name, one in SAMPLES.items()
    }


def made_ledger() -> dict[str, Any]:
    lines, previous = [], GENESIS
    for content in LEDGER:
        line, previous = chain(previous, content)
        lines.append(line.decode())
    return {"lines": lines, "head": previous}


def made_schemas() -> dict[str, str]:
    every = (*map(declaration_of, (*CONTROL, *alignment.MESSAGES)), *METHOD.declarations)
    return {f"{one.name} {one.protection}": one.schema.hex() for one in every}


def stored(name: str) -> Any:
    return json.loads((HERE / name).read_text())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_fixed_message_has_fixed_bytes(name: str) -> None:
    assert made_frames()[name] == stored("codec.json")["frames"][name]


def test_the_stored_frames_can_be_read() -> None:
    for name, content in stored("codec.json")["frames"].items():
        declaration = declaration_of(SAMPLES[name])
        header, body = open_frame(bytes.fromhex(content))
        assert (header.context, header.sequence, header.step) == (CONTEXT, 3, 258)
        assert type(decode_body(declaration, body)) is type(SAMPLES[name])


def test_declarations_keep_their_schemas() -> None:
    assert made_schemas() == stored("codec.json")["schemas"]


def test_a_frame_can_be_built_by_hand_from_the_documented_layout() -> None:
    """A second implementation, from the docstring of frame.py alone."""
    body = b"\x0a" + b"\x02" + struct.pack("<I", 1) + b"\x20"
    body_of = "record(width:int Between(1,65536) Binds(width))"
    identity = "\n".join(["CutWidth", "feature_holder", "label_holder", "PLAIN", "set-up", body_of])
    front = b"CLND\x01\x00\x00\x00" + CONTEXT + struct.pack("<QQ", 3, 258)
    front += hashlib.sha256(identity.encode()).digest()[:8]
    front += struct.pack("<Q", len(body)) + hashlib.sha256(body).digest() + bytes(8)
    frame = front + hashlib.sha256(front).digest() + body
    assert frame.hex() == stored("codec.json")["frames"]["CutWidth"]


def test_a_fixed_ledger_has_fixed_bytes() -> None:
    assert made_ledger() == stored("ledger.json")


def test_the_stored_ledger_verifies_and_its_chain_can_be_checked_without_colonnade() -> None:
    vector = stored("ledger.json")
    ledger = Ledger("".join(vector["lines"]).encode(), "the vector")
    ledger.verify()
    assert ledger.head == vector["head"]
    previous = "0" * 64
    for line in vector["lines"]:
        body, _, rest = line.rpartition(',"hash":"')
        previous_hash = hashlib.sha256(previous.encode() + body.encode()).hexdigest()
        assert rest == f'{previous_hash}"}}\n'
        previous = json.loads(line)["hash"]
    assert previous == vector["head"]


if __name__ == "__main__":
    codec = {"wire_version": 1, "frames": made_frames(), "schemas": made_schemas()}
    (HERE / "codec.json").write_text(json.dumps(codec, indent=2) + "\n")
    (HERE / "ledger.json").write_text(json.dumps(made_ledger(), indent=2, ensure_ascii=False) + "\n")
