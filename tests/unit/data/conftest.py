"""A throw-away PostgreSQL server: its own folder, its own port, gone at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret-of-the-test"


@dataclass(frozen=True)
class PostgresServer:
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://owner:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        return f"postgresql+psycopg://owner@/postgres?host={self.folder}&port={self.port}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    programs = _find_programs()
    if programs is None:
        pytest.skip("no initdb and pg_ctl on PATH or under /usr/lib/postgresql")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install colonnade[postgres])")
    account = _account()
    # pytest's own temporary paths are too long for a unix socket and closed to other accounts.
    folder = Path(tempfile.mkdtemp(prefix="cn-pg-", dir="/tmp"))
    try:
        (folder / "password").write_text(PASSWORD)
        if account is not None:
            for path in [folder, folder / "password"]:
                shutil.chown(path, account)

        def run(program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
            options: dict[str, Any] = {} if account is None else {"user": account, "group": account, "extra_groups": []}
            with (folder / f"{program}.out").open("ab") as output:  # a pipe would stay open with the server
                return subprocess.run(
                    [str(programs / program), *arguments],
                    cwd=folder,
                    env={**os.environ, "HOME": str(folder), "LC_ALL": "C"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=120,
                    **options,
                )

        data = str(folder / "data")
        made = run(
            "initdb", "-D", data, "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256",
            f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--no-sync",
        )  # fmt: skip
        assert made.returncode == 0, (folder / "initdb.out").read_text()
        try:
            # Another process may take the free port before the server does, so try a few.
            for _attempt in range(5):
                port = _free_port()
                settings = f"-c listen_addresses=127.0.0.1 -c fsync=off -c unix_socket_directories={folder} -p {port}"
                started = run("pg_ctl", "start", "-D", data, "-w", "-t", "60", "-o", settings, "-l", f"{folder}/log")
                if started.returncode == 0:
                    break
            else:
                pytest.fail((folder / "log").read_text())
            yield PostgresServer(port, folder)
        finally:
            run("pg_ctl", "stop", "-D", data, "-m", "immediate", "-w")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_programs() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if all((folder / name).exists() for name in ("initdb", "pg_ctl"))), None)


def _account() -> str | None:
    """Name the account to run the server under; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    import pwd

    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    pytest.skip("running as root, and there is no account 'postgres' or 'nobody' to run the server under")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
