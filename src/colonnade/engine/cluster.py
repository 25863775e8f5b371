"""Work on Ray, inside one party: on this machine, or on a cluster the party already has."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from colonnade.engine.calls import KEPT, Caller, raise_again, told
from colonnade.engine.engine import Engine, Work, cut
from colonnade.engine.inline import InlineEngine
from colonnade.errors import ColonnadeError, ConfigError, EngineFailed

__all__ = ["RayEngine", "answer"]

_RETRIES = 3
# A task costs Ray about 1 ms, and its first on a new worker a second.
_LEAST_SECONDS = 0.05

_CALLER = Caller()


class RayEngine(Engine):
    """Share work among the workers of Ray. Needs ``pip install 'colonnade[ray]'``.

    Without an address, Ray is started on this machine, with a token that only this user can read, and ended by `close`.
    A Ray that this process has started or joined before is used, and left as it is. On a cluster, every node
    needs this version of colonnade; and contexts hold private keys, so all who can use the cluster must belong to the
    party.
    """

    name = "ray"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        _set_environment(address)
        self._ray = _imported()
        self._inline = InlineEngine()
        self._lock = threading.Lock()
        self._contexts: OrderedDict[bytes, Any] = OrderedDict()
        self._folder: str | None = None
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._start(workers, address)
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        # Failures are told as text, so what Ray sees as a failure is the death of a worker.
        self._answer = self._ray.remote(answer).options(num_cpus=1, max_retries=_RETRIES)

    def map(self, work: Work, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the function's answer to every chunk, in order. A single chunk is not worth sending."""
        if len(chunks) < 2:
            return self._inline.map(work, chunks)
        if not self._ray.is_initialized():
            raise EngineFailed("This engine is closed. Open another.")
        answers = []
        try:
            # In a list, so that Ray hands over the reference and only a worker without the context fetches it.
            context = [self._shipped(work)]
            for chunk in chunks:
                answers.append(self._answer.remote(work.function, work.prepare, work.digest, context, chunk))
            found = self._ray.get(answers)
        except self._ray.exceptions.RayError as error:
            raise EngineFailed(
                f"Ray gave up on {work.function} ({type(error).__name__}). If memory is short, set fewer workers in "
                "[engine] of party.toml; on a cluster, check that every node has this version of colonnade."
            ) from error
        except KeyboardInterrupt:
            for one in answers:
                self._ray.cancel(one)
            raise
        for kind, message, _ in found:
            if kind:
                raise_again(kind, message)
        return [result for _, _, result in found]

    def parts(self, count: int, seconds_each: float) -> list[slice]:
        """Cut items into parts of 50 ms or more, about four for each worker."""
        return cut(count, count * seconds_each, workers=self.workers, least_seconds=_LEAST_SECONDS)

    def close(self) -> None:
        """Forget all contexts, and end Ray if it was started or joined here."""
        with self._lock:
            self._contexts.clear()
        self._inline.close()
        if self._is_ours:
            self._is_ours = False
            self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _shipped(self, work: Work) -> Any:
        with self._lock:
            if work.digest not in self._contexts:
                self._contexts[work.digest] = self._ray.put(work.context)
            self._contexts.move_to_end(work.digest)
            if len(self._contexts) > KEPT:
                self._contexts.popitem(last=False)
            return self._contexts[work.digest]

    def _start(self, workers: int | None, address: str | None) -> None:
        own: dict[str, Any] = {}
        if address is None:
            # Ray opens its folder to everyone, so it gets one inside a folder that only this user can enter. The path
            # must be short, since Ray's sockets lie there; a temporary folder set by the user may not be.
            self._folder = tempfile.mkdtemp(prefix="colonnade-", dir="/tmp")
            own = {
                "num_cpus": workers,
                "include_dashboard": False,
                "_temp_dir": f"{self._folder}/ray",
            }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, OSError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            self.close()
            where = f"at {address}" if address else "on this machine"
            raise EngineFailed(
                f"Ray {where} cannot be used ({type(error).__name__}). Check [engine] in party.toml, or set "
                'kind = "pool" there.'
            ) from error


def answer(function: str, prepare: str, digest: bytes, context: list[Any], chunk: bytes) -> tuple[str, str, bytes]:
    """Do one task in a worker of Ray; return the kind and message of an error, which are empty if there is none."""

    def load() -> memoryview:
        return memoryview(_imported().get(context[0]))

    try:
        return "", "", _CALLER.call(function, prepare, digest, load, chunk)
    except ColonnadeError as error:
        return (*told(error), b"")


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "The engine 'ray' needs Ray, which is not installed. Run: pip install 'colonnade[ray]'; or set "
            'kind = "pool" in [engine] of party.toml.'
        ) from None
    return ray


def _set_environment(address: str | None) -> None:
    """Keep Ray from calling home, and give a Ray of our own a secret, so that no other user can give it work.

    What the user has set stays. Ray reads these again in later starts, so they stay too.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        return
    if "ray" not in sys.modules:
        # Ray reads this one when it is imported. Newer ones set it themselves if nobody has.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        # Otherwise Ray would keep one in the user's home for good.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
