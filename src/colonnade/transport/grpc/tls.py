"""grpc, with TLS 1.3 only. Import grpc from here and from nowhere else.

grpcio has no setting for the lowest version. But TLS 1.2 takes its cipher from a list that grpc reads from the
environment when it starts, and the one in our list needs an RSA certificate, which no party has: so TLS 1.2 finds no
cipher. TLS 1.3 does not look at that list.
"""

from __future__ import annotations

import os

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES128-GCM-SHA256"

# What goes wrong with a connection is told by `Endpoint.trouble`, once and in words, not by lines on stderr.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

__all__ = ["grpc"]
