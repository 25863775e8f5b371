"""Write psi.json: known answers of blinded ids, by arithmetic that shares no code with colonnade.

Only Python's own integers and hashlib are used; the formulas stand in ``tests/unit/crypto/test_blinding.py``.
Everything is derived from fixed labels, so that the file is always the same: ``python -m tests.vectors.make_psi``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.unit.crypto.test_blinding import ORDER, OUTPUT, SUITE, decoded, expanded, times, written

FILE = Path(__file__).parent / "psi.json"
IDS = (b"i7", b"s7", b"sZo\xc3\xab", b"t2:4:sZoe:2:i7", b"i-170141183460469231731687303715884105728", b"s" + b"x" * 300)


def secret_of(name: str) -> int:
    return int.from_bytes(hashlib.shake_256(f"psi {name}".encode()).digest(40), "big") % (ORDER - 1) + 1


def made() -> dict[str, Any]:
    salt = hashlib.sha256(b"psi salt").digest()
    first, second = secret_of("first"), secret_of("second")
    cases = []
    for one in IDS:
        stretched = expanded(salt + one, SUITE, 64)
        point = decoded(stretched)
        factor = hashlib.blake2s(one, key=first.to_bytes(32)).digest()
        output = OUTPUT + salt + written(times(second, point)) + one
        cases.append(
            {
                "id": one.hex(),
                "expanded": stretched.hex(),
                "hashed": written(point).hex(),
                "by_first": written(times(first, point)).hex(),
                "by_second": written(times(second, point)).hex(),
                "by_both": written(times(first * second % ORDER, point)).hex(),
                "factor": factor.hex(),
                "by_factor": written(times(int.from_bytes(factor), point)).hex(),
                "output_by_second": hashlib.sha256(output).digest()[:24].hex(),
            }
        )
    secrets = {"first": first.to_bytes(32, "big").hex(), "second": second.to_bytes(32, "big").hex()}
    return {"suite": SUITE.decode(), "salt": salt.hex(), **secrets, "ids": cases}


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=2) + "\n")
