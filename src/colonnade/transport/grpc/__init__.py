"""gRPC with mutual TLS 1.3 and pinned certificates. There is no plaintext mode."""

from colonnade.transport.grpc.certificates import (
    Identity,
    check_certificate,
    fingerprint,
    make_identity,
    name_of,
    server_name,
)
from colonnade.transport.grpc.endpoint import Endpoint, Partner, Renewals
from colonnade.transport.grpc.link import DEAD_SECONDS, GrpcLink
from colonnade.transport.grpc.loopback import LoopbackNetwork

__all__ = [
    "DEAD_SECONDS",
    "Endpoint",
    "GrpcLink",
    "Identity",
    "LoopbackNetwork",
    "Partner",
    "Renewals",
    "check_certificate",
    "fingerprint",
    "make_identity",
    "name_of",
    "server_name",
]
