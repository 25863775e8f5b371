"""Write the parts of the documentation that repeat the source.

A page holds regions between ``<!-- generated: NAME -->`` and ``<!-- end -->``. This script fills each of them from the
declarations, the settings, the errors, the commands, the benchmarks or the Makefile, so that a table cannot drift from
the code.

    python docs/generate.py           rewrite the regions
    python docs/generate.py --check   change nothing; exit 1 if a region is out of date
"""

from __future__ import annotations

import ast
import configparser
import dataclasses
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import colonnade
from colonnade import alignment, errors
from colonnade.cli import COMMANDS
from colonnade.engine import EngineSettings
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.launch import home
from colonnade.messages import LIMITS, Declaration, declaration_of, kinds, seal
from colonnade.methods import method_named
from colonnade.session import CONTROL, Alignment, Channel, Evaluate, PolicyRules, channel, derive_seed
from colonnade.session.control import ResumeFrom
from colonnade.settings import settings_of

ROOT = Path(__file__).resolve().parent.parent
REGION = re.compile(r"(<!-- generated: ([\w ./-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

KEY_TABLES: dict[str, type] = {
    "run": home._RunTable,
    "alignment": Alignment,
    "evaluate": Evaluate,
    "party": home._IdentityTable,
    "partners": home._PartnerTable,
    "table": home._PartyTableTable,
    "policy": PolicyRules,
    "engine": EngineSettings,
}
# What a method's author needs beside the names at the top.
AUTHORS = {
    "messages": (
        *("Protection", "Sealed", "by", "when", "between", "record", "Carries", "Warns"),
        *("Dims", "Between", "Binds", "Length", "Is", "OneOf", "Distinct", "Hex", "Longest"),
    ),
    "session": ("Channel", "RunPlan", "Pair", "Finding", "Figure"),
    "settings": ("described",),
    "data": ("LabelEncoder", "TableEncoder", "batches"),
    "training": ("Inputs",),
    "exchanges.holdings": ("encoded_columns", "encoded_labels", "own_part", "scores_in_terms_of", "without_columns"),
    "privacy": ("SecretNoise",),
    "testing": ("Case", "check_method", "toy_tables", "train"),
}
LAYOUTS = {
    1: "one byte, 0 or 1",
    2: "u32 length n, then n bytes: two's complement, little-endian, no longer than needed",
    3: "IEEE 754 double, little-endian",
    4: "u64 length n, padding, then n bytes",
    5: "u32 length n, then n bytes of UTF-8; `str(N)` where N characters are the most, not 256",
    6: "u8 element code, u8 dimensions d, d × u64 extents, padding, then the elements in C order",
    7: "as an array; the receiver makes a tensor of it",
    8: "one byte, 0 for absent or 1 for present; if present, the inner value with its tag",
    9: "u32 count, then that many inner values, each with its tag",
    10: "the fields in declared order, each with its tag; no count, no names",
    11: "u64 length n, padding, then n bytes whose meaning is the ciphertext type's",
}


def main() -> int:
    """Rewrite or check every region; return the exit status."""
    check = "--check" in sys.argv[1:]
    stale = []
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = REGION.sub(lambda found: f"{found[1]}{region(found[2])}\n{found[3]}", old)
        if new != old:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        verb = "out of date; run python docs/generate.py" if check else "rewritten"
        sys.stderr.write(f"{', '.join(stale)}: {verb}\n")
    return 1 if check and stale else 0


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def region(name: str) -> str:
    """Return the content of one region, such as ``messages splitnn``."""
    kind, _, argument = name.partition(" ")
    if kind not in REGIONS:
        raise SystemExit(f"There is no generated region '{name}'. Known: {', '.join(sorted(REGIONS))}.")
    return REGIONS[kind](argument) if argument else REGIONS[kind]()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(headings), ["---"] * len(headings), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# Methods and messages


def roles(method: str) -> str:
    """List a method's roles."""
    return table(
        ["role", "brings", "parties"],
        ([f"`{role.name}`", role.holds, _count(role.at_least, role.at_most)] for role in method_named(method).roles),
    )


def messages(which: str) -> str:
    """List what a method or the alignment may send, from the declarations."""
    return _message_table(_declarations(which))


def control() -> str:
    """List the session's own messages."""
    return _message_table(_declarations("control"))


def settings(method: str) -> str:
    """List a method's settings."""
    return _setting_table(method_named(method).config)


def _declarations(which: str) -> list[Declaration]:
    shared = {"control": CONTROL, "alignment": alignment.MESSAGES}
    return [declaration_of(cls) for cls in shared[which]] if which in shared else [*method_named(which).declarations]


def _message_table(declarations: Iterable[Declaration]) -> str:
    # What differs only in who sends it to whom stands on one line.
    lines: dict[tuple[str, ...], list[Declaration]] = {}
    for one in declarations:
        warns = ", ".join(str(flag.name).lower() for flag in one.warns)
        lines.setdefault((one.name, one.protection, one.step, one.summary, one.reveals, warns), []).append(one)
    return table(
        ["message", "from", "to", "protection", "step", "what it is", "reveals", "warns of"],
        (
            [
                f"`{name}`",
                ", ".join(dict.fromkeys(one.sender for one in found)),
                ", ".join(dict.fromkeys(one.receiver for one in found)),
                *others,
            ]
            for (name, *others), found in lines.items()
        ),
    )


def _count(at_least: int, at_most: int | None) -> str:
    if at_most is None:
        return f"{at_least} or more"
    return str(at_least) if at_least == at_most else f"{at_least} to {at_most}"


# Files


def keys(which: str) -> str:
    """List the keys of one table of run.toml or party.toml."""
    return _setting_table(KEY_TABLES[which])


def _setting_table(kind: type) -> str:
    return table(
        ["key", "takes", "default", "meaning"],
        ([f"`{one.name}`", one.takes, _default(one.default), one.meaning] for one in settings_of(kind)),
    )


def _default(text: str) -> str:
    return text if text in ("none", "required") else f"`{text}`"


# Wire


def tags() -> str:
    """List the kinds of values, their tags and their bytes."""
    # One without a tag becomes another kind before anything is sent.
    found = {kind.tag: kind for kind in _kinds(kinds.Kind) if kind.tag}
    if set(found) != set(LAYOUTS):
        raise SystemExit("docs/generate.py does not describe every kind of value in colonnade.messages.kinds")
    names = {6: "array", 8: "optional(K)", 9: "sequence(K)", 10: "record(name:K,…)", 11: "ciphertext(TYPE)"}
    return table(
        ["tag", "in the fingerprint", "bytes after the tag"],
        ([str(tag), f"`{names.get(tag) or found[tag]().describe()}`", LAYOUTS[tag]] for tag in sorted(found)),
    )


def elements() -> str:
    """List the codes of array elements."""
    return table(["code", "element"], ([str(code), f"{dtype.name}"] for code, dtype in enumerate(kinds._DTYPES)))


def limits() -> str:
    """List the bounds a decoder applies."""
    return table(["limit", "value"], ([f"`{name}`", f"{value:,}"] for name, value in vars(LIMITS).items()))


def schemas(which: str) -> str:
    """List the fingerprints of messages and the text they come from."""
    found = _declarations(which)
    count = Counter(one.name for one in found)
    # Messages of one name are told apart by who sends them to whom, and under which protection.
    names = [
        f"`{one.name}`" + (f" {one.sender} to {one.receiver}, {one.protection}" if count[one.name] > 1 else "")
        for one in found
    ]
    return table(
        ["message", "schema", "body"],
        ([name, f"`{one.schema.hex()}`", f"`{one.body.describe()}`"] for name, one in zip(names, found, strict=True)),
    )


def vectors() -> str:
    """Return known answers for a second implementation."""
    context = Channel._context(_Run("0" * 64), "bank", "shop", b"\x01" * 16, b"\x02" * 16)  # type: ignore[arg-type]
    lines = [
        "greeting context",
        f"  {channel._GREETING.hex()}",
        "context (run digest of 64 zeros, bank to shop, nonces 16 × 01 and 16 × 02)",
        f"  {context.hex()}",
    ]
    for content, sequence, step in ((EpochVerdict(True, False), 5, 40), (ResumeFrom(300), 1, 0)):
        _, parts = seal(declaration_of(content), content, context=context, sequence=sequence, step=step)
        frame = b"".join(parts)
        lines.append(f"{_shown(content)}, that context, sequence {sequence}, step {step}")
        lines += [f"  {frame[start : start + 32].hex()}" for start in range(0, len(frame), 32)]
    lines += [
        'derived seed (run seed 7, purpose "batches", counter 0)',
        f"  {derive_seed(7, 'batches', 0)}",
    ]
    return "\n".join(["```text", *lines, "```"])


@dataclasses.dataclass(frozen=True)
class _Run:
    """As much of a channel as the context depends on."""

    _run: str


def _kinds(kind: type) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _shown(content: Any) -> str:
    values = ", ".join(f"{field.name}={getattr(content, field.name)}" for field in dataclasses.fields(content))
    return f"{type(content).__name__}({values})"


# Errors, commands, names, targets


def error_tree() -> str:
    """List the errors by exit code."""
    return table(
        ["exit code", "error", "is a", "meaning"],
        (
            [str(found.exit_code), f"`{found.__name__}`", _parent(found), _first_paragraph(found)]
            for found in sorted(_all_errors(errors.ColonnadeError), key=lambda one: one.exit_code)
        ),
    )


def _all_errors(root: type[errors.ColonnadeError]) -> list[type[errors.ColonnadeError]]:
    # Other rooms may have errors of their own; those are no one else's to catch.
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [root, *(found for child in children for found in _all_errors(child))]


def _parent(found: type) -> str:
    return "" if found is errors.ColonnadeError else f"`{found.__mro__[1].__name__}`"


def commands() -> str:
    """List the commands."""
    return table(["command", "what it does"], ([f"`colonnade {name}`", text] for name, text in COMMANDS.items()))


def targets() -> str:
    """List the targets of the Makefile."""
    found = re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return table(["target", "what it does"], ([f"`make {name}`", text] for name, text in found))


def rooms() -> str:
    """List the rooms of the package from the top layer down, by the first line of their text, and further rules."""
    linter = configparser.ConfigParser()
    linter.read(ROOT / ".importlinter", encoding="utf-8")
    # A room in brackets is planned.
    layers = [
        re.findall(r"(?<!\()\b\w+", line) for line in linter["importlinter:contract:layers"]["layers"].split("\n")
    ]
    source = ROOT / "src/colonnade"
    homes = {path.stem: path for path in source.glob("*.py")} | {
        path.parent.name: path for path in source.glob("*/__init__.py")
    }
    found = (
        [f"`{room}`", str(depth), _first_line(homes[room])]
        for depth, layer in enumerate(filter(None, layers), 1)
        for room in layer
    )
    contracts = [linter[name]["name"] for name in linter.sections() if not name.endswith(("importlinter", ":layers"))]
    rules = "\n".join(f"- {rule}." for rule in contracts)
    return f"{table(['room', 'layer', 'what lives there'], found)}\n\nFurther contracts:\n\n{rules}"


def benchmarks() -> str:
    """List the benchmarks by the first line of their text; none of them is imported, some take long to load."""
    rows = []
    for path in sorted(ROOT.glob("benchmarks/**/*.py")):
        text = path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            rows.append([f"`python -m {name}`", (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]])
    return table(["benchmark", "what it measures"], rows)


def _first_line(path: Path) -> str:
    """Return the first line of a module's text; it is not imported, as some take long to load."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "`")


def names() -> str:
    """Describe every public name: how it is called, and its docstring's first paragraph."""
    return "\n\n".join(_entry(name) for name in colonnade.__all__ if not name.startswith("_"))


def authors() -> str:
    """List what a method's author needs from other modules."""
    homes = ((home, import_module(f"colonnade.{home}"), names) for home, names in AUTHORS.items())
    return table(
        ["from", "name", "what it is"],
        (
            [f"`colonnade.{home}`", f"`{name}`", _first_paragraph(getattr(module, name))]
            for home, module, names in homes
            for name in names
        ),
    )


def code(argument: str) -> str:
    """Show a file, or what it defines under some names, in the file's own order."""
    path, *names = argument.split()
    text = (ROOT / path).read_text(encoding="utf-8")
    if not names:
        return f"```{LANGUAGES[Path(path).suffix]}\n{text}```"
    lines, found = text.splitlines(), []
    for node in ast.parse(text).body:
        name = getattr(node, "name", None) or (node.targets[0].id if isinstance(node, ast.Assign) else None)
        if name in names:
            begin = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            found.append((name, "\n".join(lines[begin - 1 : node.end_lineno])))
    if {name for name, _ in found} != set(names):
        raise SystemExit(f"{path} does not define all of {', '.join(names)}.")
    return "```python\n" + "\n\n\n".join(one for _, one in found) + "\n```"


def _entry(name: str) -> str:
    value = getattr(colonnade, name)
    text = [f"### `{name}`", "", _first_paragraph(value), "", "```text", *_signature(name, value), "```"]
    if inspect.isclass(value):
        members = [line for member in _members(value) for line in _member(value, member)]
        text += ["", *members] if members else []
    return "\n".join(text)


def _signature(name: str, value: Any) -> list[str]:
    parameters = list(inspect.signature(value).parameters.values())
    lines, star = [f"{name}("], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        plain = re.sub(r": (['\"])(.*)\1", r": \2", str(one).split(" = ")[0])
        given = "" if one.default is one.empty else " = " + re.sub(r"<.*>", "…", repr(one.default))
        lines.append(f"    {plain}{given},")
    return [*lines, ")"] if parameters else [f"{name}()"]


def _members(value: type) -> list[str]:
    own = [cls for cls in value.__mro__ if cls.__module__.startswith("colonnade")]
    # scikit-learn adds set_…_request methods of its own.
    found = {name: None for cls in own for name in vars(cls) if not name.startswith(("_", "set_"))}
    return [name for name in found if callable(getattr(value, name, None)) or _is_property(value, name)]


def _is_property(value: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(value, name), property) or hasattr(
        inspect.getattr_static(value, name), "attrname"
    )


def _member(value: type, name: str) -> list[str]:
    found = inspect.getattr_static(value, name)
    if _is_property(value, name):
        return [f"- `.{name}`: {_first_paragraph(found.fget if isinstance(found, property) else found.func)}"]
    given = [one for one in inspect.signature(getattr(value, name)).parameters if one != "self"]
    return [f"- `.{name}({', '.join(given)})`: {_first_paragraph(getattr(value, name))}"]


def _first_paragraph(documented: Any) -> str:
    text = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


LANGUAGES = {".py": "python", ".toml": "toml"}
REGIONS: dict[str, Callable[..., str]] = {
    "authors": authors,
    "benchmarks": benchmarks,
    "code": code,
    "commands": commands,
    "control": control,
    "elements": elements,
    "errors": error_tree,
    "keys": keys,
    "limits": limits,
    "messages": messages,
    "names": names,
    "roles": roles,
    "rooms": rooms,
    "schemas": schemas,
    "settings": settings,
    "tags": tags,
    "targets": targets,
    "vectors": vectors,
}

if __name__ == "__main__":
    sys.exit(main())
