"""The container files say what the code does; where a Docker daemon answers, the image is built and asked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_docs import ROOT, blocks, check_command

from colonnade.cli import main
from colonnade.launch.identity import own_certificate, paired

yaml = pytest.importorskip("yaml")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line.strip() and line[0] != "#"]
PAGE = ROOT / "docs" / "how-to-run-in-containers.md"
PARTIES = ("hospital", "laboratory")


def all_of(name: str) -> list[str]:
    return [rest for word, rest in INSTRUCTIONS if word == name]


def test_the_dockerfile_installs_what_make_installs_for_a_user_without_rights() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ARG", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in INSTRUCTIONS} <= known
    pinned = re.search(r"install --quiet (torch==\S+)", (ROOT / "Makefile").read_text())
    installs = [line for line in all_of("RUN") if "pip install" in line]
    assert pinned
    assert f" {pinned.group(1)}" in installs[0], "before anything else asks for torch"
    (script,) = json.loads(all_of("ENTRYPOINT")[0])
    assert script in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert json.loads(all_of("CMD")[0]) == ["--help"]
    assert all_of("USER")[-1] not in ("root", "0")
    places = [place for line in all_of("COPY") if "--from" not in line for place in line.split()[:-1]]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in allowed, "a key or a table must not get into an image"
    for place in places:
        assert (ROOT / place).exists()
        assert f"!{place.removeprefix('./')}" in allowed


def test_container_files_name_no_host_and_no_path_of_a_machine() -> None:
    for name in ("Dockerfile", "compose.yaml", ".dockerignore"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert not re.search(r"(?<![\w.])/(work|root|tmp/\w|opt|home/(?!colonnade))", text)
    for image in all_of("FROM"):
        assert "/" not in image


def test_each_party_has_a_home_of_its_own_on_a_network_that_leads_nowhere() -> None:
    services = COMPOSE["services"]
    assert tuple(services) == PARTIES
    homes = []
    for name, about in services.items():
        (network,) = about["networks"]
        assert COMPOSE["networks"][network]["internal"] is True
        assert "ports" not in about
        assert not about["user"].startswith("0")
        assert about["read_only"]
        volumes = dict(one.split(":")[:2] for one in about["volumes"])
        homes += [place for place, inside in volumes.items() if inside == all_of("WORKDIR")[-1]]
        check_command(about["command"], name)
    assert homes == [f"./{party}" for party in PARTIES]


def test_the_page_s_commands_make_two_homes_that_are_paired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without containers: what each service is told is given in that party's folder."""
    monkeypatch.setattr("colonnade.cli.pair._says_yes", lambda _: True)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _: True})())
    for name in ("agreed", *PARTIES):
        (tmp_path / name).mkdir()
    for line in (line for block in blocks(PAGE, "sh") for line in block.splitlines()):
        words = shlex.split(line)
        if words[:3] != ["docker", "compose", "run"]:
            continue
        words = [word for word in words[3:] if word not in ("--rm", "--use-aliases")]
        check_command(words[1:], line)
        if words[1] != "run":
            monkeypatch.chdir(tmp_path / words[0])
            with pytest.raises(SystemExit) as ending:
                main([word.replace("/agreed", "../agreed") for word in words[1:]])
            assert ending.value.code == 0, capsys.readouterr().err
    for party, partner in (PARTIES, PARTIES[::-1]):
        assert paired(tmp_path / party)[partner].fingerprint == own_certificate(tmp_path / partner).fingerprint
        assert f'address = "{partner}:7443"' in (tmp_path / party / "party.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_image_is_built_and_answers() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        pytest.skip("no Docker daemon answers")

    def docker(*words: str) -> Any:
        return subprocess.run(["docker", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    docker("build", "--tag", "colonnade-test", ".")
    assert "splitnn" in docker("run", "--rm", "colonnade-test", "methods")
    assert docker("run", "--rm", "--entrypoint", "id", "colonnade-test", "-u").strip() != "0"
