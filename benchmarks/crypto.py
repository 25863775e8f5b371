"""How fast encrypted arithmetic is: against python-paillier, against GMP itself, and two processes against one.

The same as `colonnade bench crypto`; colonnade.crypto.bench.speed says what is measured and how.
"""

from __future__ import annotations

import argparse

from benchmarks.form import Findings, main, say
from colonnade.crypto.bench.speed import FULL, QUICK, measure_crypto


def measure(arguments: argparse.Namespace) -> Findings:
    return measure_crypto(QUICK if arguments.quick else FULL, say)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure)
