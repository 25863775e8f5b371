"""Private set intersection of a million ids with a million, between two processes over mutual TLS.

Each party is a process of its own with one worker (the `inline` engine); its ids are texts of 18 characters, a tenth of
them shared. CPU seconds are the process's, from the first message of the alignment to the last, TLS and ledger
included; memory is the process's peak, with torch and the table in it. The peer is openmined-psi (ECDH, raw data
structure, revealing the intersection), in this process and without a network, on the first ids of the same lists:
its CPU seconds, the mean of its two sides, are scaled to all ids.

Growth is shown by the CPU seconds per id at 10^4, 10^5 and 10^6 ids, which the same processes align in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.form import Findings, main, say

PARTIES = ("bank", "shop")
PEER_IDS = 100_000


def ids_of(party: str, count: int) -> list[str]:
    """Return a party's ids: a tenth of them are the other's too."""
    start = 0 if party == PARTIES[0] else count - count // 10
    numbers = np.random.default_rng(PARTIES.index(party)).permutation(np.arange(start, start + count))
    return [f"customer-{number:09d}" for number in numbers]


def take_part(party: str, counts: list[int], identity: dict[str, str], partner: str) -> None:
    """Align as one of the two processes, told through stdin where the other is: so many ids, then so many more."""
    import pandas as pd

    from colonnade import alignment
    from colonnade.data import PartyTable
    from colonnade.methods import method_named
    from colonnade.session import Participant, RunPlan, Session
    from colonnade.session.handshake import greet
    from colonnade.transport.grpc import Endpoint, Identity, Partner

    other = PARTIES[1 - PARTIES.index(party)]
    own = Identity(party, identity["key"].encode(), identity["certificate"].encode())
    endpoint = Endpoint(own, {other: Partner(other, partner.encode())}, "127.0.0.1:0")
    endpoint.open()
    print(json.dumps({"port": endpoint.port}), flush=True)
    endpoint.learn_address(other, sys.stdin.readline().strip())
    link = endpoint.link(other)
    while not link.is_up:
        link.wait_until_up(1.0)
    method = method_named("splitnn")
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    plan = RunPlan(name="benchmark", method="splitnn", roles=roles, config={"defence": "none"})
    session = Session(Participant(party), method, plan, {other: link}, messages=alignment.MESSAGES)
    greet(session)
    channel = session.all_channels[0]
    for count in counts:
        table = PartyTable(pd.DataFrame({"id": ids_of(party, count)}), id="id", name=party)
        sent, clock, processor = channel.bytes_sent, time.monotonic(), time.process_time()
        aligned = alignment.align(session, table)
        found = {
            "cpu_seconds": time.process_time() - processor,
            "seconds": time.monotonic() - clock,
            "bytes_sent": channel.bytes_sent - sent,
            "shared": len(aligned),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(found), flush=True)
    sys.stdin.readline()
    link.close(1.0)
    endpoint.close()


def align(counts: list[int]) -> Iterator[dict[str, dict[str, Any]]]:
    """Run both processes and yield what each measured, for every number of ids."""
    from colonnade.transport.grpc import make_identity

    identities = {party: make_identity(party) for party in PARTIES}
    processes = {}
    for party in PARTIES:
        other = PARTIES[1 - PARTIES.index(party)]
        task = {
            "party": party,
            "counts": counts,
            "identity": {
                "key": identities[party].key.decode(),
                "certificate": identities[party].certificate.decode(),
            },
            "partner": identities[other].certificate.decode(),
        }
        command = [sys.executable, "-m", "benchmarks.alignment", "--take-part"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        processes[party] = process
    ports = {party: json.loads(process.stdout.readline())["port"] for party, process in processes.items()}
    for party, process in processes.items():
        other = PARTIES[1 - PARTIES.index(party)]
        process.stdin.write(f"127.0.0.1:{ports[other]}\n")
        process.stdin.flush()
    for count in counts:
        say(f"{count:,} ids each …")
        yield {party: json.loads(process.stdout.readline()) for party, process in processes.items()}
    for process in processes.values():
        process.communicate("done\n", timeout=60)


def peer_seconds(count: int) -> float:
    """Return the CPU seconds per id of openmined-psi, the mean of its two sides."""
    import private_set_intersection.python as psi

    own, other = (ids_of(party, count) for party in PARTIES)
    server, client = psi.server.CreateWithNewKey(True), psi.client.CreateWithNewKey(True)
    start = time.process_time()
    setup = server.CreateSetupMessage(0.001, count, other, psi.DataStructure.RAW)
    request = client.CreateRequest(own)
    response = server.ProcessRequest(request)
    found = client.GetIntersection(setup, response)
    seconds = time.process_time() - start
    if len(found) != count // 10:
        raise RuntimeError("openmined-psi found another intersection")
    return seconds / 2 / count


def measure(arguments: argparse.Namespace) -> Findings:
    if arguments.take_part:
        take_part(**json.loads(sys.stdin.readline()))
        sys.exit(0)
    findings = Findings()
    figures = findings.figures
    ids = 2000 if arguments.quick else arguments.ids
    figures |= {"ids_each": ids, "peer_ids": min(PEER_IDS, ids), "load_average": os.getloadavg()[0]}
    say("openmined-psi …")
    peers = [peer_seconds(figures["peer_ids"])]
    per_id = {}
    counts = [ids // 100, ids // 10, ids]
    for count, found in zip(counts, align(counts), strict=True):
        if {one["shared"] for one in found.values()} != {count // 10}:
            raise RuntimeError("the alignment found other rows than are shared")
        per_id[count] = max(one["cpu_seconds"] for one in found.values()) / count
        figures[f"cpu_seconds_per_party_at_{count}"] = per_id[count] * count
        figures[f"seconds_at_{count}"] = max(one["seconds"] for one in found.values())
    say("openmined-psi again …")
    peers.append(peer_seconds(figures["peer_ids"]))
    peer = sum(peers) / 2
    figures["peer_cpu_seconds_per_party_scaled"] = peer * ids
    bytes_sent = sum(one["bytes_sent"] for one in found.values())
    figures["bytes_in_all"] = bytes_sent
    findings.bar("cpu_of_openmined_psi", per_id[ids] / peer, at_most=0.65)
    findings.bar("bytes_per_id", bytes_sent / (2 * ids), at_most=70, at_any_size=True)
    findings.bar("peak_bytes_per_party", max(one["peak_bytes"] for one in found.values()), at_most=2**30)
    findings.bar("growth_of_cpu_per_id_from_a_tenth", per_id[ids] / per_id[ids // 10], at_most=1.25)
    return findings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ids", type=int, default=1_000_000, help="ids of each party")
    parser.add_argument("--take-part", action="store_true", help=argparse.SUPPRESS)


if __name__ == "__main__":
    main(__doc__ or "", measure, add)
