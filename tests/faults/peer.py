"""A party in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from colonnade.transport.grpc import Endpoint, GrpcLink, Identity, Partner, make_identity

PEER = """
import json, sys
from colonnade.transport.grpc import Endpoint, Identity, Partner
facts = json.loads(sys.stdin.readline())
own = Identity(facts["name"], facts["key"].encode(), facts["certificate"].encode())
partner = Partner(facts["peer"], facts["peer_certificate"].encode(), facts["address"])
endpoint = Endpoint(own, {partner.name: partner}, facts["listen"])
endpoint.open()
link = endpoint.link(partner.name)
print(endpoint.port, flush=True)
while True:
    link.send([link.receive()])
"""


class Process:
    """A party in its own process that sends back what it receives."""

    def __init__(self, own: Identity, peer: Identity, address: str | None, listen: str | None) -> None:
        facts = {"name": own.name, "key": own.key.decode(), "certificate": own.certificate.decode()}
        facts |= {"peer": peer.name, "peer_certificate": peer.certificate.decode()}
        line = json.dumps(facts | {"address": address, "listen": listen})
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self.port = self._process.stdout.readline().strip()

    @property
    def identifier(self) -> int:
        return self._process.pid

    def signal(self, which: signal.Signals) -> None:
        self._process.send_signal(which)

    def end(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.communicate(timeout=10)


def join(kind: str) -> tuple[Endpoint, GrpcLink, Process]:
    """Return a door and a line of ours to another process that listens or dials."""
    a, b = make_identity("a"), make_identity("b")
    if kind == "listens":
        process = Process(b, a, None, "127.0.0.1:0")
        endpoint = Endpoint(a, {"b": Partner("b", b.certificate, f"127.0.0.1:{process.port}")})
    else:
        endpoint = Endpoint(a, {"b": Partner("b", b.certificate)}, "127.0.0.1:0")
        endpoint.open()
        process = Process(b, a, f"127.0.0.1:{endpoint.port}", None)
    return endpoint, endpoint.link("b"), process
