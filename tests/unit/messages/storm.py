"""Decode 100,000 mutated frames while recording every audit event. Run as a program; prints its counts as JSON.

Half of the frames are mutated as a whole: none may be accepted, because the digests cover every byte. The other half
are sound frames around mutated bodies, so that the decoder itself is reached: there a message of the declared kind may
result, or FrameRefused, or WrongContent for a text, and nothing else.
"""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import torch
from tests.unit.messages.samples import (
    Inner,
    OfArray,
    OfBools,
    OfCipher,
    OfInt,
    OfRecords,
    OfTensor,
    OfTexts,
    ToyCipher,
    body_of,
    everything,
    frame_around,
    frame_of,
)

from colonnade.errors import FrameRefused, WrongContent
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.messages import declaration_of, decode_body, encode_body, open_frame
from colonnade.methods.splitnn.messages import CutActivations, CutWidth
from colonnade.session.control import AgreedField, Failed, HeldCheckpoints, Hello, ResumeFrom

WHOLE, BODIES = 100_000, 50_000

CORPUS = [
    everything(),
    OfInt(-(2**70)),
    OfArray(np.arange(6, dtype="<f8").reshape(2, 3)),
    OfArray(np.zeros((0, 3), "<f4")),
    OfArray(np.array([True, False])),
    OfTensor(torch.ones(2, 2)),
    OfTexts(("a", "bc", "東京")),
    OfBools((True, False, True)),
    OfRecords((Inner("a", (1, -2)), None)),
    OfCipher(ToyCipher(b"abc"), (None, ToyCipher(b""))),
    Hello(
        "0.1.0/1", "bank", "label_holder", "run", "train", (AgreedField("run.seed", bytes(16)),), bytes(32), bytes(16)
    ),
    HeldCheckpoints((5, 10, 15)),
    ResumeFrom(None),
    ResumeFrom(300),
    Failed("bank", 3, "the loss is no longer a number", True),
    CutWidth(32),
    CutActivations(torch.randn(3, 4, generator=torch.Generator().manual_seed(0))),
    EpochVerdict(True, False),
]
NASTY = [
    b"\x00" * 8,
    b"\xff" * 8,
    b"\xff" * 4,
    (2**40).to_bytes(8, "little"),
    (2**31).to_bytes(4, "little"),
    b"\x80",
    b"\x7f",
]


def mutate(rng: random.Random, frame: bytes, others: list[bytes]) -> bytearray:
    """Return a changed copy: one to three of bit flip, byte edit, splice, cut, extension, copied or moved region."""
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(8)
        place = rng.randrange(len(changed)) if changed else 0
        length = rng.randrange(1, 24)
        if kind == 0 and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[place] = rng.randrange(256)
        elif kind == 2:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            changed[place : place + length] = other[start : start + length]
        elif kind == 3:
            del changed[place:]
        elif kind == 4:
            changed += rng.randbytes(length)
        elif kind == 5:
            changed[place:place] = changed[place : place + length]
        elif kind == 6:
            del changed[place : place + length]
        else:
            nasty = rng.choice(NASTY)
            changed[place : place + len(nasty)] = nasty
    return changed


def main(scale: float) -> None:
    rng = random.Random(20_260_101 + int(scale))
    frames = [frame_of(one) for one in CORPUS]
    originals = set(frames)
    bodies = [body_of(one) for one in CORPUS]
    declarations = [declaration_of(one) for one in CORPUS]
    by_schema = {one.schema: one for one in declarations}
    counts = {"whole": 0, "whole_accepted": 0, "bodies": 0, "bodies_refused": 0, "bodies_accepted": 0}
    faults: list[str] = []
    events: list[str] = []
    armed = [False]

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        if armed[0]:
            events.append(f"{event} {arguments!r}"[:200])

    def decode(frame: bytes | bytearray) -> object | None:
        armed[0] = True
        try:
            header, body = open_frame(frame)
            return decode_body(by_schema[header.schema], body)
        except (FrameRefused, WrongContent):
            return None
        finally:
            armed[0] = False

    for frame in frames:
        decode(frame)  # what Python imports on first use is no work of a peer's
    sys.addaudithook(listen)
    for frame in frames:
        assert decode(frame) is not None
    while counts["whole"] < WHOLE * scale:
        mutated = mutate(rng, rng.choice(frames), frames)
        if bytes(mutated) in originals:
            continue
        counts["whole"] += 1
        try:
            counts["whole_accepted"] += decode(mutated) is not None
        except Exception as error:
            faults.append(f"{type(error).__name__} for the frame {mutated.hex()[:400]}")
    while counts["bodies"] < BODIES * scale:
        which = rng.randrange(len(bodies))
        mutated = mutate(rng, bodies[which], bodies)
        if mutated == bodies[which]:
            continue
        counts["bodies"] += 1
        declaration = declarations[which]
        try:
            message = decode(frame_around(bytes(mutated), declaration.schema))
        except Exception as error:
            faults.append(f"{type(error).__name__} for {declaration.name} {mutated.hex()[:400]}")
            continue
        if message is None:
            counts["bodies_refused"] += 1
            continue
        counts["bodies_accepted"] += 1
        if type(message) is not type(CORPUS[which]):
            faults.append(f"{type(message).__name__} came out of {declaration.name}")
        elif b"".join(encode_body(declaration, message)) != mutated:
            faults.append(f"a second encoding of one {declaration.name}: {mutated.hex()[:400]}")
    print(json.dumps(counts | {"faults": faults[:5], "fault_count": len(faults), "events": events[:5]}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
