"""One party of a local run, as a process of its own. Started by `local`, not by people.

It speaks with its parent in lines of JSON: it is told on stdin what to do, then where the others are, and reports on
stdout. When stdin ends, the parent is gone or wants it to stop. Nothing of the table goes to the parent.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError

__all__ = ["main"]


def main() -> int:
    """Take part in one run as the parent says."""
    # A parent's Ctrl-C reaches it through stdin; what a terminal sends to everyone at once must not come first.
    signal.signal(signal.SIGTERM, _interrupt)
    gc.set_threshold(100_000, 50, 50)  # as the command does
    task = json.loads(sys.stdin.readline())
    try:
        _work(task)
    except ColonnadeError as error:
        _tell(error={"kind": type(error).__name__, "message": str(error)})
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    _tell(done=True)
    return 0


def _work(task: dict[str, Any]) -> None:
    from colonnade.transport.grpc import Endpoint, Identity, Partner

    party = task["party"]
    identity = Identity(party, task["key"].encode(), task["certificate"].encode())
    partners = {name: Partner(name, pem.encode()) for name, pem in task["partners"].items()}
    endpoint = Endpoint(identity, partners, "127.0.0.1:0")
    endpoint.open()
    try:
        _tell(port=endpoint.port)
        seat, plan, config, method = _seat(task)
        for name, address in json.loads(sys.stdin.readline())["addresses"].items():
            endpoint.learn_address(name, address)
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        _join(task, seat, plan, config, method, endpoint)
    finally:
        endpoint.close()


def _seat(task: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    import torch

    from colonnade.launch.alignments import alignment_plan
    from colonnade.launch.earlier import earlier_folder
    from colonnade.launch.home import read_party_home, read_run_file
    from colonnade.launch.run_folder import RunFolder
    from colonnade.launch.settings import config_from_json
    from colonnade.launch.take_part import Seat
    from colonnade.methods import method_named

    torch.set_num_threads(task["threads"])
    plan = read_run_file(Path(task["run_file"]), task["stage"])
    if task["mode"] is not None:
        plan = alignment_plan(plan, task["mode"])
    home = read_party_home(Path(task["home"]), task["party"])
    method = method_named(plan.method)
    table = home.table_for(method, plan)
    _tell(rows=table.rows, columns=len(table.columns), label=table.has_label)
    folder = RunFolder(Path(task["folder"]))
    earlier = earlier_folder(method, plan, folder.path.parent, task["party"], is_apart=False)
    seat = Seat(
        task["party"],
        table,
        home.policy,
        folder.party(task["party"]),
        folder.earlier_runs(task["party"]),
        part=None if earlier is None else earlier.load().record.part,
        earlier=earlier,
        engine=home.engine.shared_by(len(plan.parties)),
        alignments=home.alignments,
        history=home.history,
        queries=home.queries,
    )
    folder.party(task["party"]).begin(plan, table)
    return seat, plan, config_from_json(method, plan.config), method


def _join(task: dict[str, Any], seat: Any, plan: Any, config: Any, method: Any, endpoint: Any) -> None:
    from colonnade.launch.join import join
    from colonnade.launch.watch import Watcher
    from colonnade.session import Progress

    def observe(progress: Progress) -> None:
        _tell(progress=asdict(progress))

    observer = None if task["quiet"] else observe
    compare = bool(task["compare"])
    join(seat, method, plan, config, endpoint, watcher=Watcher(), observer=observer, compare=compare, comes_back=False)


def _tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _stop_with_parent() -> None:
    sys.stdin.read()
    signal.raise_signal(signal.SIGINT)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
