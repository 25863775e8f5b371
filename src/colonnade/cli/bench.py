"""`colonnade bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, say
from colonnade.crypto.bench.speed import FULL, QUICK, measure_crypto
from colonnade.errors import UsageError, did_you_mean

app = make_app("Measure the speed of encrypted arithmetic on this machine.")

_BENCHMARKS = {"crypto": measure_crypto}


@app.command(
    epilog=examples("colonnade bench crypto", "colonnade bench crypto --json", "colonnade bench crypto --quick")
)
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"What to measure: {', '.join(_BENCHMARKS)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Take a few seconds and a tiny key, only to see that it works.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print figures and bars as JSON.")] = False,
) -> None:
    """Measure encryption, products and decryption here, in about two minutes.

    Figures are what was measured. With python-paillier (pip install phe) they are compared with it and held against
    bars, which a quick run does not judge. The exit code is 0 if every bar holds, else 1.
    """
    if name not in _BENCHMARKS:
        raise UsageError(f"There is no benchmark '{name}'. {did_you_mean(name, _BENCHMARKS)}")
    findings = _BENCHMARKS[name](QUICK if quick else FULL, say)
    if quick:
        findings.take_as_quick()
    if json:
        print_json(findings.document())
    else:
        for line in findings.lines():
            echo(line)
    if not findings.all_hold:
        raise typer.Exit(1)
