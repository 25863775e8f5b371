"""Do the jobs of a benchmark in several processes, and keep each result in a file of its own.

A kept result bears a digest of the code and the settings that it follows from. After a change of these it is stale:
it is named and done again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import colonnade
from benchmarks.form import say

Job = tuple[Any, ...]
Judge = Callable[[Any], dict[str, Any]]

_PACKAGE = Path(colonnade.__file__).parent
# What they hold shows results, and makes none.
_SHOWING = ("cli", "reports")


def name_of(job: Job) -> str:
    """Return the name of a job, by which its result is known."""
    return "|".join(str(one) for one in job)


class Kept:
    """What is done of a method's benchmark, in a folder of files; nothing is kept without one."""

    def __init__(self, folder: Path | None, method: str) -> None:
        self._folder, self._method = folder, method

    def result(self, job: Job) -> Any:
        """Return a job's result, or None if it is not there or stale."""
        kept = self._read(job)
        return None if kept is None or kept.get("digest") != self.digest else kept["result"]

    def stale(self, every: Sequence[Job]) -> list[Job]:
        """Return the jobs whose results follow from other code or settings."""
        return [job for job in every if self._read(job) is not None and self.result(job) is None]

    def write(self, job: Job, result: Any) -> None:
        """Keep a result."""
        if self._folder is not None:
            self._file(job).parent.mkdir(parents=True, exist_ok=True)
            self._file(job).write_text(json.dumps({"digest": self.digest, "result": result}))

    @cached_property
    def digest(self) -> str:
        """Return a digest of all code that results follow from, settings included, which stand in it."""
        found = hashlib.sha256(f"torch {version('torch')} numpy {version('numpy')}".encode())
        for path in files_of(self._method):
            found.update(hashlib.sha256(path.read_bytes()).digest())
        return found.hexdigest()

    def _read(self, job: Job) -> Any:
        return None if self._folder is None or not self._file(job).exists() else json.loads(self._file(job).read_text())

    def _file(self, job: Job) -> Path:
        assert self._folder is not None
        safe = "".join(one if one.isalnum() else "_" for one in name_of(job))
        return self._folder / self._method / f"{safe}.json"


def files_of(method: str) -> list[Path]:
    """Return the files that results follow from: the product's but for other methods, and the benchmark's."""
    found = []
    for path in _PACKAGE.rglob("*.py"):
        room, *rest = path.relative_to(_PACKAGE).parts
        if room not in _SHOWING and not (room == "methods" and len(rest) > 1 and rest[0] != method):
            found.append(path)
    for path in Path(__file__).parent.glob("*.py"):
        if path.stem == "playing" or (path.stem.startswith(method) and not path.stem.endswith("_page")):
            found.append(path)
    return sorted(found)


def keep_and_run(every: Sequence[Job], judge: Judge, arguments: argparse.Namespace, method: str) -> dict[str, Any]:
    """Do all jobs, or what is left of them after an interruption; results are as JSON gives them back."""
    kept = Kept(arguments.keep, method)
    if stale := kept.stale(every):
        names = ", ".join(map(name_of, stale))
        say(f"{len(stale)} kept results follow from other code or settings, and are done again: {names}")
    found = {name_of(job): result for job in every if (result := kept.result(job)) is not None}
    left = [job for job in every if name_of(job) not in found]
    for number, (job, result) in enumerate(_done(left, judge, 1 if arguments.quick else arguments.workers), 1):
        found[name_of(job)] = result = json.loads(json.dumps(result))
        kept.write(job, result)
        if number % 10 == 0 or result["seconds"] > 60:
            say(f"{len(found)} of {len(every)} done: {name_of(job)}, {result['seconds']:.0f} s")
    return found


def _done(jobs: Sequence[Job], judge: Judge, workers: int) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield jobs with their results as they are done: in this process, or in several others."""
    if workers == 1:
        yield from ((job, _carry_out(judge, job)) for job in jobs)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_carry_out, judge, job): job for job in jobs}
        for future in as_completed(futures):
            if future.exception() is not None:
                say(f"{name_of(futures[future])} failed")
                pool.shutdown(cancel_futures=True)
            yield futures[future], future.result()


def what_is_kept(every: Sequence[Job], arguments: argparse.Namespace, method: str) -> list[Job]:
    """Return the jobs that were done before; stale results are refused."""
    kept = Kept(arguments.keep, method)
    if stale := kept.stale(every):
        raise SystemExit(
            f"{len(stale)} results in {arguments.keep} follow from other code or settings: "
            f"{', '.join(map(name_of, stale))}. Leave out --kept to do them again."
        )
    return [job for job in every if kept.result(job) is not None]


def options(parser: argparse.ArgumentParser) -> None:
    """Add what all such benchmarks can be told."""
    parser.add_argument("--workers", type=int, default=2, help="processes, of one core each")
    parser.add_argument("--keep", type=Path, help="a folder for what is done, to go on from after an interruption")
    parser.add_argument("--only", default="", help="do only jobs whose data has this in its name; no bars, no page")


def _carry_out(judge: Judge, job: Job) -> dict[str, Any]:
    """Do one of the jobs, on one core."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    return judge(job) | {"seconds": time.perf_counter() - began}
