"""The documentation says what the code does: generated regions, links, blocks and commands."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from colonnade.cli import COMMANDS
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [content for found, content in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def test_generated_regions_are_up_to_date() -> None:
    check = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@every_page
def test_relative_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name_of(page)} links to {target}"
        if heading:
            assert heading in headings(linked), f"{name_of(page)} links to {target}"


def headings(page: Path) -> set[str]:
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_page_is_reached_from_the_readme(page: Path) -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        current = todo.pop()
        if current in seen or current.suffix != ".md":
            continue
        seen.add(current)
        links = re.findall(r"\]\(([^)\s#]+)", current.read_text(encoding="utf-8"))
        todo += [(current.parent / link).resolve() for link in links if "://" not in link]
    assert page in seen


@every_page
def test_python_blocks_are_valid_and_marked_ones_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = blocks(page, "python")
    for block in found:
        ast.parse(block)
    marked = "\n".join(block for block in found if block.startswith("# run\n"))
    monkeypatch.chdir(tmp_path)
    exec(compile(marked, name_of(page), "exec"), {"__name__": "__docs__"})


@every_page
def test_toml_blocks_are_files_that_can_be_used(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "toml")):
        document = tomllib.loads(block)
        folder = tmp_path / str(number)
        folder.mkdir()
        if "run" in document:
            (folder / "run.toml").write_text(block, encoding="utf-8")
            read_run_file(folder / "run.toml")
        if "party" in document:
            (folder / "party.toml").write_text(block, encoding="utf-8")
            read_party_home(folder)
        assert {"run", "party", "project"} & document.keys()


@every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets(), line
            elif words[:1] == ["colonnade"]:
                check_command(words[1:], line)
            else:
                assert not words or words[0] in ("cp", "docker", "mkdir", "pip", "python", "sed"), line


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def check_command(words: list[str], line: str) -> None:
    assert words[0] in COMMANDS, line
    command = typer.main.get_command(import_module(f"colonnade.cli.{words[0]}").app)
    rest = words[1:]
    inner = getattr(command, "commands", None)
    if inner is not None:
        assert rest[0] in inner, line
        command, rest = inner[rest[0]], rest[1:]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    for word in rest:
        if word.startswith("--"):
            assert word in known, line


def test_commands_named_in_prose_exist() -> None:
    for page in PAGES:
        for command in re.findall(r"`colonnade ([a-z]+)", page.read_text(encoding="utf-8")):
            assert command in COMMANDS, f"{name_of(page)}: colonnade {command}"
        for target in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")):
            assert target in targets(), f"{name_of(page)}: make {target}"


def test_readme_begins_with_the_two_commands() -> None:
    first = blocks(ROOT / "README.md", "sh")[0]
    assert [line.split()[:2] for line in first.splitlines()] == [["make", "demo"], ["make", "test"]]


def test_readme_marks_as_available_exactly_the_methods_that_exist() -> None:
    rows = re.findall(r"`([a-z_]+)`\S* \| (available|planned) \|", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {name for name, status in rows if status == "available"} == {method.name for method in METHODS}
    assert any(status == "planned" for _, status in rows)


def test_every_method_has_a_page() -> None:
    for method in METHODS:
        page = (ROOT / "docs" / f"method-{method.name}.md").read_text(encoding="utf-8")
        for region in ("roles", "messages", "settings"):
            assert f"<!-- generated: {region} {method.name} -->" in page


@every_page
def test_no_page_promises_too_much(page: Path) -> None:
    # The page on wording and the contributors' rule quote these words to forbid them.
    if page.name in ("talking-about-privacy.md", "CONTRIBUTING.md"):
        return
    text = page.read_text(encoding="utf-8").lower()
    for words in ("fully private", "completely secure", "tamper-proof", "unbiased", "guarantee"):
        assert words not in text


def test_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "APPENDIX: How to apply the Apache License to your work." in text
    assert text.rstrip().endswith("limitations under the License.")
