"""Do the jobs of a benchmark in several processes, and keep each result in a file of its own."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.form import say

Job = tuple[Any, ...]


def name_of(job: Job) -> str:
    """Return the name of a job, by which its result is known."""
    return "|".join(str(one) for one in job)


def keep_and_run(
    every: Sequence[Job], judge: Callable[[Any], dict[str, Any]], workers: int, keep: Path | None, folder: str
) -> dict[str, Any]:
    """Do all jobs, or what is left of them after an interruption; results are as JSON gives them back."""
    found: dict[str, Any] = {}
    for job in every:
        path = _file(keep, folder, job)
        if path is not None and path.exists():
            found[name_of(job)] = json.loads(path.read_text())
    left = [job for job in every if name_of(job) not in found]
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_carry_out, judge, job): job for job in left}
        for number, future in enumerate(as_completed(futures), 1):
            job = futures[future]
            if future.exception() is not None:
                say(f"{name_of(job)} failed")
                pool.shutdown(cancel_futures=True)
            found[name_of(job)] = json.loads(json.dumps(future.result()))
            path = _file(keep, folder, job)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found[name_of(job)]))
            if number % 10 == 0 or found[name_of(job)]["seconds"] > 60:
                say(f"{len(found)} of {len(every)} done: {name_of(job)}, {found[name_of(job)]['seconds']:.0f} s")
    return found


def what_is_kept(every: Sequence[Job], keep: Path | None, folder: str) -> list[Job]:
    """Return the jobs that were done before."""
    return [job for job in every if (path := _file(keep, folder, job)) is not None and path.exists()]


def options(parser: argparse.ArgumentParser) -> None:
    """Add what all such benchmarks can be told."""
    parser.add_argument("--workers", type=int, default=2, help="processes, of one core each")
    parser.add_argument("--keep", type=Path, help="a folder for what is done, to go on from after an interruption")
    parser.add_argument("--only", default="", help="do only jobs whose data has this in its name; no bars, no page")


def _carry_out(judge: Callable[[Any], dict[str, Any]], job: Job) -> dict[str, Any]:
    """Do one of the jobs, on one core."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    return judge(job) | {"seconds": time.perf_counter() - began}


def _file(keep: Path | None, folder: str, job: Job) -> Path | None:
    safe = "".join(one if one.isalnum() else "_" for one in name_of(job))
    return None if keep is None else keep / folder / f"{safe}.json"
