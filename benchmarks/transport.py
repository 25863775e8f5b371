"""What the recorded channel costs over the wire: against raw grpcio streaming with the same TLS, in the same run.

Two processes on loopback. The peer sends a 256 MiB array as 1 MiB chunks over a bare bidirectional stream, then the
same array as one declared message through a channel with its ledger on disk; then 1 KiB messages back and forth, both
ways. The two are interleaved. Memory is what sending 1 GiB adds to the sender's peak beyond the array itself.

Last, the split network of `benchmarks.overhead` as a user gives it: `colonnade run --local`, a process for each party
over mutual TLS, against `colonnade run --simulate`, all in one process. Both are whole commands, from start to report.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.form import Findings, main, say
from benchmarks.overhead import BATCH, make_frames
from colonnade.ledger import LedgerWriter
from colonnade.messages import PLAIN, declaration_of, message
from colonnade.session import Channel, Policy
from colonnade.transport.grpc import Endpoint, Identity, Partner, make_identity, server_name
from colonnade.transport.grpc.tls import grpc

RAW_CHUNK = 2**20 - 64


@message(sender="client", receiver="server", protection=PLAIN, step="benchmark")
class Load:
    """An array. Reveals: the array."""

    values: np.ndarray[Any, Any]


@message(sender="server", receiver="client", protection=PLAIN, step="benchmark")
class Done:
    """An answer. Reveals: nothing."""

    values: np.ndarray[Any, Any]


def channel_over(link: Any, own: str, peer: str, ledger: Path) -> Channel:
    writer = LedgerWriter(ledger)
    writer.mark("opened", party=own, digest="benchmark")
    return Channel(
        link,
        party=own,
        role=own,
        peer=peer,
        peer_role=peer,
        run="benchmark",
        declarations=[declaration_of(Load), declaration_of(Done)],
        ledger=writer,
        policy=Policy(),
        step=lambda: 0,
    )


def peak_mib() -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


# The server's process: a raw stream that answers after every burst, and a channel that answers every message.


def serve(folder: Path) -> None:
    identity = Identity("server", (folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())
    client = (folder / "client.crt").read_bytes()

    def raw(chunks: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for chunk in chunks:
            if chunk[-1:] == b"!":
                yield b"ok"

    credentials = grpc.ssl_server_credentials([(identity.key, identity.certificate)], client, True)
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.stream_stream_rpc_method_handler(raw)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw.Raw", {"Stream": handler}),))
    raw_port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    endpoint = Endpoint(identity, {"client": Partner("client", client)}, "127.0.0.1:0")
    endpoint.open()
    link = endpoint.link("client")
    print(json.dumps({"raw": raw_port, "line": endpoint.port}), flush=True)
    channel = channel_over(link, "server", "client", folder / "server.jsonl")
    answer = Done(np.zeros(1024, np.uint8))
    while True:
        if channel.receive(Load).values.size == 1:
            break
        channel.send(answer)
    link.close()
    endpoint.close()
    server.stop(None)


class RawClient:
    """The bare stream."""

    def __init__(self, folder: Path, port: int) -> None:
        credentials = grpc.ssl_channel_credentials(
            (folder / "server.crt").read_bytes(),
            (folder / "client.key").read_bytes(),
            (folder / "client.crt").read_bytes(),
        )
        options = [("grpc.ssl_target_name_override", server_name("server"))]
        self._channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=options)
        self._pending: list[bytes] = []
        self._more = threading.Semaphore(0)
        self._answers = self._channel.stream_stream("/raw.Raw/Stream")(self._requests())

    def _requests(self) -> Iterator[bytes]:
        while True:
            self._more.acquire()
            yield self._pending.pop(0)

    def send(self, content: memoryview) -> None:
        for start in range(0, len(content), RAW_CHUNK):
            piece = bytes(content[start : start + RAW_CHUNK])
            last = start + RAW_CHUNK >= len(content)
            self._pending.append(piece + (b"!" if last else b"."))
            self._more.release()
        next(self._answers)


def measure(arguments: argparse.Namespace) -> Findings:
    if arguments.serve:
        serve(Path(arguments.serve))
        sys.exit(0)
    if arguments.quick:
        arguments.mebibytes, arguments.repetitions, arguments.rows, arguments.launches = 4, 1, 1000, 1
    with tempfile.TemporaryDirectory() as name:
        findings = _measure(Path(name), arguments)
        _compare_launches(Path(name) / "launches", arguments, findings)
    return findings


_RUN = f"""\
[run]
name = "bench"
method = "splitnn"
roles = {{ label_holder = "bank", feature_holder = "shop" }}
seed = 1

[config]
batch_size = {BATCH}
epochs = 3
minimum_steps = 0
patience = 0
secret_start = false
"""


def _compare_launches(folder: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    for party, frame in zip(("bank", "shop"), make_frames(arguments.rows), strict=True):
        (folder / party).mkdir(parents=True)
        frame.to_parquet(folder / party / "table.parquet")
        label = 'label = "y"\n' if party == "bank" else ""
        table = f'[table]\nsource = "table.parquet"\nid = "id"\n{label}'
        (folder / party / "party.toml").write_text(f'[party]\nname = "{party}"\n\n{table}')
    (folder / "run.toml").write_text(_RUN)
    seconds: dict[str, list[float]] = {"simulate": [], "local": []}
    auc: dict[str, float] = {}
    for _ in range(arguments.launches):
        for launch, times in seconds.items():
            command = [sys.executable, "-m", "colonnade", "run", f"--{launch}", str(folder / "run.toml")]
            started = time.perf_counter()
            done = subprocess.run(
                [*command, "--no-compare", "--json", "--quiet", "--overwrite"], check=True, capture_output=True
            )
            times.append(time.perf_counter() - started)
            auc[launch] = json.loads(done.stdout)["metrics"]["together"]["auc"]
        say("launches: " + ", ".join(f"{launch} {times[-1]:.1f} s" for launch, times in seconds.items()))
    for launch, times in seconds.items():
        findings.figures[f"{launch}_seconds"] = statistics.median(times)
        findings.figures[f"{launch}_auc"] = auc[launch]
    ratios = [local / simulated for local, simulated in zip(seconds["local"], seconds["simulate"], strict=True)]
    findings.bar("local_time_of_simulate", statistics.median(ratios), at_most=2.0)
    findings.bar("local_and_simulate_auc_apart", abs(auc["local"] - auc["simulate"]), at_most=0.0, at_any_size=True)


def _measure(folder: Path, arguments: argparse.Namespace) -> Findings:
    for party in ("server", "client"):
        identity = make_identity(party)
        (folder / f"{party}.key").write_bytes(identity.key)
        (folder / f"{party}.crt").write_bytes(identity.certificate)
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.transport", "--serve", str(folder)], stdout=subprocess.PIPE, text=True
    )
    ports = json.loads(server.stdout.readline())  # type: ignore[union-attr]
    raw = RawClient(folder, ports["raw"])
    own = Identity("client", (folder / "client.key").read_bytes(), (folder / "client.crt").read_bytes())
    partner = Partner("server", (folder / "server.crt").read_bytes(), f"127.0.0.1:{ports['line']}")
    endpoint = Endpoint(own, {"server": partner})
    endpoint.open()
    link = endpoint.link("server")
    channel = channel_over(link, "client", "server", folder / "client.jsonl")

    def through_channel(values: np.ndarray[Any, Any]) -> None:
        channel.send(Load(values))
        channel.receive(Done)

    size = arguments.mebibytes * 2**20
    array = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    small = np.zeros(1024, np.uint8)
    raw.send(small.data)
    through_channel(small)
    sides = (("raw", lambda values: raw.send(values.data)), ("channel", through_channel))
    seconds: dict[str, list[float]] = {"raw": [], "channel": []}
    trips: dict[str, list[float]] = {"raw": [], "channel": []}
    for repetition in range(arguments.repetitions):
        for side, act in sides:
            started = time.perf_counter()
            act(array)
            seconds[side].append(time.perf_counter() - started)
        say(f"round {repetition + 1}: raw {seconds['raw'][-1]:.2f} s, channel {seconds['channel'][-1]:.2f} s")
    # Short bursts in turn: what else the machine does then slows both sides alike.
    bursts, each = (2, 5) if arguments.quick else (20, 50)
    for _ in range(bursts):
        for side, act in sides:
            started = time.perf_counter()
            for _ in range(each):
                act(small)
            trips[side].append((time.perf_counter() - started) / each)
    del array
    big = np.zeros(2**24 if arguments.quick else 2**30, np.uint8)
    big[:] = 7
    before = peak_mib()
    through_channel(big)
    added = peak_mib() - before
    channel.send(Load(np.zeros(1, np.uint8)))
    link.close()
    endpoint.close()
    server.wait(timeout=20)

    findings = Findings()
    for side in ("raw", "channel"):
        findings.figures[f"{side}_mib_per_second"] = arguments.mebibytes / statistics.median(seconds[side])
        findings.figures[f"{side}_round_trip_microseconds"] = 1e6 * statistics.median(trips[side])
    ratios = [a / b for a, b in zip(seconds["raw"], seconds["channel"], strict=True)]
    findings.bar("throughput_of_raw", statistics.median(ratios), at_least=0.5)
    findings.bar(
        "round_trip_of_raw",
        statistics.median(b / a for a, b in zip(trips["raw"], trips["channel"], strict=True)),
        at_most=3.0,
    )
    findings.bar("memory_added_by_1_gib_in_mib", added, at_most=96.0)
    return findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the run that is launched both ways")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, add_arguments)
