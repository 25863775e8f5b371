"""One party of a local run, as a process of its own. Started by `local`, not by people.

It speaks with its parent in lines of JSON: it is told on stdin what to do, then where the others are, and reports on
stdout. When stdin ends, the parent is gone or wants it to stop. Of the table the parent gets counts and the name of the
positive class.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import threading
import warnings
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
    warnings.showwarning = _show_warning
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
    with Endpoint(identity, partners, "127.0.0.1:0") as endpoint:
        _tell(port=endpoint.port)
        _take_part(task, endpoint)


def _take_part(task: dict[str, Any], endpoint: Any) -> None:
    import torch

    from colonnade.launch.home import read_party_home, read_run_file, table_in_words
    from colonnade.launch.join import take_part_remotely
    from colonnade.launch.party_folder import earlier_folder
    from colonnade.launch.run_folder import RunFolder, alignment_plan
    from colonnade.launch.status import Watcher
    from colonnade.methods import method_named
    from colonnade.session import Participant

    torch.set_num_threads(task["threads"])
    party, folder = task["party"], RunFolder(Path(task["folder"]))
    plan = read_run_file(Path(task["run_file"]), task["stage"]).at_threshold(task["threshold"])
    if task["mode"] is not None:
        plan = alignment_plan(plan, task["mode"])
    home, method = read_party_home(Path(task["home"]), party), method_named(plan.method)
    table = home.table_for(method, plan)
    for text in table_in_words(party, table, plan):
        _tell(said=text)
    model = earlier_folder(method, plan, folder.path.parent, party, is_apart=False)
    participant = Participant(
        party,
        home.policy,
        folder.party(party).path,
        folder.earlier_runs(party),
        table=table,
        part=None if model is None else model.load().part,
        earlier=None if model is None else model.path,
        engine=home.engine.shared_by(len(plan.parties)),
        alignments=home.alignments,
        queries=home.queries,
    )
    folder.party(party).begin(plan, table)
    for name, address in json.loads(sys.stdin.readline())["addresses"].items():
        endpoint.learn_address(name, address)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    take_part_remotely(
        participant,
        plan,
        endpoint,
        watcher=Watcher(),
        observer=None if task["quiet"] else lambda progress: _tell(progress=asdict(progress)),
        compare=bool(task["compare"]),
        comes_back=False,
    )


def _tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if category.__module__.startswith("colonnade"):
        _tell(said=f"Warning: {message}")


def _stop_with_parent() -> None:
    sys.stdin.read()
    signal.raise_signal(signal.SIGINT)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
