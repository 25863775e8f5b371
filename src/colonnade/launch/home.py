"""Read ``run.toml`` and ``party.toml``, and begin the second."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from colonnade.data import (
    LINK_COLUMNS,
    DateOrder,
    Dialect,
    Kind,
    LabelEncoder,
    PartyTable,
    linked_rows,
    matched_rows,
    read_frame,
    read_table,
)
from colonnade.engine import EngineSettings
from colonnade.errors import ConfigError, did_you_mean
from colonnade.messages import Protection, declaration_of
from colonnade.session import ALIGN, CONTROL, Alignment, Evaluate, Method, ModelPart, Policy, PolicyRules, RunPlan
from colonnade.settings import config_to_json, configured, described, settings_of, validated
from colonnade.text import toml_value

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PartyHome",
    "check_message_names",
    "label_encoder_of",
    "new_party_file",
    "read_party_home",
    "read_run_file",
    "shape_in_words",
    "table_in_words",
]


@described
@dataclass(frozen=True, kw_only=True)
class _RunTable:
    """What is run, by whom: the ``[run]`` table of ``run.toml``."""

    name: str
    """Names the run and its folder. Letters, digits, `.`, `_`, `-`."""
    method: str
    """One of `colonnade methods`."""
    roles: Mapping[str, str | list[str]]
    """Which party plays which role; a list where several play the same."""
    seed: int = 0
    """Where all training randomness comes from. Not a secret."""
    stage: str = "train"
    """What is done with the method: `train`, or another of its stages. `run --stage` goes before it."""
    after: str | None = None
    """The folder of the run that a stage goes on from, if it is not the usual one."""
    purpose: str | None = None
    """What the model is for, in a line of words. Every party is shown it before it agrees, and the report says it."""
    retention: str | None = None
    """How long the run may be kept, in a line of words. After a day in it, such as `2027-01-31`, status and report say
    that it has passed; nothing is deleted by itself."""


@described
@dataclass(frozen=True, kw_only=True)
class _PartyTableTable:
    """Where a party's rows are: the ``[table]`` table of ``party.toml``."""

    source: str
    """A file (`.csv`, `.csv.gz`, `.tsv`, `.parquet`), relative to this folder, or a database URL."""
    id: str | list[str]
    """The column that names the row, the same person at every party; a list where several do so together."""
    label: str | None = None
    """The column to predict; only at a party that has it."""
    positive: str | bool | int | float | None = None
    """The one of two classes whose probability scores are, as written in the table. Without it, that is 1 of 0 and 1,
    true of true and false, or the rarer class."""
    types: Mapping[str, Kind] = field(default_factory=dict)
    """Which columns are `numeric`, `date`, `boolean` or `categorical`, where the look of the cells misleads. A column
    named here is never left out as an identifier or free text."""
    drop: list[str] = field(default_factory=list)
    """Columns to ignore."""
    unlabelled: bool = False
    """Allow rows without a label, for methods that learn from such rows too."""
    most_categories: int = 50
    """How many categories of a column, the most frequent, are told apart; all others count as one."""
    separator: str | None = None
    """What separates cells of a text file, such as `;`. By default found out, as are the five below."""
    quote: str | None = None
    """What stands around cells of a text file that contain the separator: one character, or empty for none."""
    encoding: str | None = None
    """How a text file's characters are stored, such as `utf-8`, `cp1252`, `utf-16`."""
    decimal: Literal[".", ","] | None = None
    """What begins the fraction in numbers that are text."""
    thousands: Literal["", ".", ",", "'", " "] | None = None
    """What groups the digits of numbers that are text; empty for nothing."""
    dates: DateOrder | None = None
    """Which comes first in dates such as 03/04/2017 that are text."""
    query: str | None = None
    """For a database URL: a SELECT. Exactly one of `query` and `table`."""
    table: str | None = None
    """For a database URL: a table or view, `schema.table` if needed."""
    matches: str | None = None
    """A `.csv` or `.parquet` file of rows another tool matched, for runs with `protocol = "given"`."""
    links: str | None = None
    """A file of links between rows, with ids in its columns `from` and `to`, for methods that use graphs."""


@described
@dataclass(frozen=True, kw_only=True)
class _IdentityTable:
    """Who a party is: the ``[party]`` table of ``party.toml``."""

    name: str
    """This party's name, as in `run.toml`."""
    listen: str | None = None
    """Where this party waits for partners, as `HOST:PORT`; 0.0.0.0 means all networks of this machine. Without it this
    party dials, and its partners must listen."""


@described
@dataclass(frozen=True, kw_only=True)
class _PartnerTable:
    """A partner: a ``[partners.NAME]`` table of ``party.toml``."""

    address: str | None = None
    """Where that partner is reached, as `HOST:PORT`. Without it, the partner dials."""
    id: str | list[str] | None = None
    """The column, or several, by which that partner knows the rows, if not `table.id`. May be empty in rows that the
    partner cannot share."""


@dataclass(frozen=True)
class PartyHome:
    """One party's folder: who it is, where its table lies, what it allows."""

    name: str
    folder: Path
    policy: Policy
    _table: _PartyTableTable | None
    """None at a party that only plays roles without a table."""
    listen: str | None = None
    """Where partners reach this party, as HOST:PORT; None when it only dials."""
    partners: Mapping[str, str] = field(default_factory=dict)
    """Where this party reaches its partners, as far as it knows."""
    engine: EngineSettings = EngineSettings()  # noqa: RUF009 - frozen
    """Where this party's heavy work runs."""
    partner_ids: Mapping[str, str | list[str]] = field(default_factory=dict)
    """The id columns by which a partner knows the rows, where they are others than the table's own."""

    @property
    def alignments(self) -> Path:
        """Return where this party keeps what it knows of shared rows, across runs."""
        return self.folder / "alignments"

    @property
    def queries(self) -> Path:
        """Return the file that says how many rows this party scored for whom, in all its runs."""
        return self.folder / "queries.jsonl"

    @property
    def contributions(self) -> Path:
        """Return the file that says how many numbers about which rows were opened to whom, in all runs."""
        return self.folder / "contributions.jsonl"

    @property
    def names_matches(self) -> bool:
        """Tell whether this home has a list of rows that another tool matched."""
        return self._table is not None and self._table.matches is not None

    @property
    def has_table(self) -> bool:
        """Tell whether this home names a table."""
        return self._table is not None

    def table_for(self, method: Method, plan: RunPlan) -> PartyTable:
        """Read what this party brings to a run: its own table, or nothing where its role holds none."""
        if self.name not in method.parties_with_rows(plan):
            return PartyTable.nothing(self.name)
        if self._table is None:
            raise ConfigError(
                f"'{self.name}' plays {plan.role_of(self.name)} in the run '{plan.name}', which needs a table, but "
                f"{self.folder / 'party.toml'} has no [table]. Add it, with source and id."
            )
        return self.read_table(plan.alignment)

    def read_table(self, rule: Alignment | None = None) -> PartyTable:
        """Read the party's own table, and the list of matched rows where a run's rule takes shared rows from it."""
        about = self._settings_of_table
        told = {name: value for name, value in vars(about).items() if name not in ("source", "matches", "links")}
        table = read_table(about.source, partner_ids=self.partner_ids, name=self.name, folder=self.folder, **told)
        if rule is not None and rule.protocol == "given":
            table.matches = self._read_matches()
            matched_rows(table, table.matches)  # a list that does not fit is told now, not when the partners wait
        if about.links is not None:
            # Ids are compared as they are written; 007 must stay 007.
            kinds: dict[str, Kind] = dict.fromkeys(LINK_COLUMNS, "categorical")
            table.links = read_frame(about.links, id=LINK_COLUMNS, types=kinds, folder=self.folder)
            linked_rows(table, table.links)
        return table

    @property
    def _settings_of_table(self) -> _PartyTableTable:
        if self._table is None:
            raise ConfigError(f"{self.folder / 'party.toml'} has no [table]. Add it, with source and id.")
        return self._table

    def _read_matches(self) -> pd.DataFrame:
        about = self._settings_of_table
        if about.matches is None:
            raise ConfigError(
                f'run.toml takes rows that another tool matched ([alignment] protocol = "given"), but '
                f'{self.folder / "party.toml"} names no list of them. Add matches = "FILE" to [table]: a .csv or '
                f".parquet file with the table's id in the order that all parties share."
            )
        id_columns = _columns_in(about.id)
        types: dict[str, Kind] = {name: about.types[name] for name in id_columns if name in about.types}
        # A token is compared as it is written; 007 must stay 007.
        return read_frame(about.matches, id=id_columns, types=types | {"match": "categorical"}, folder=self.folder)

    def read_new_rows(self, source: str, part: ModelPart, *, parties: Collection[str] | None = None) -> PartyTable:
        """Read rows to score from a file of the same form, with or without the label and dropped columns.

        Columns have the types with which ``part`` of the model was trained: a few new rows may look different from
        many. ``parties`` are those of the run: ids that only other partners know the rows by may be missing.
        """
        about, types = self._settings_of_table, _column_types(part)
        partner_ids = {
            partner: columns for partner, columns in self.partner_ids.items() if parties is None or partner in parties
        }
        id_columns = _columns_in(about.id, *partner_ids.values())
        # A few rows may not show how numbers and dates are written; those of the training did.
        written = part.document.get("written", {})
        told = {one.name: getattr(about, one.name) for one in fields(Dialect)}
        dialect = Dialect(**written | {name: value for name, value in told.items() if value is not None})
        frame = read_frame(source, id=id_columns, types=types, dialect=dialect)
        ignored = {*about.drop, about.label, *_columns_in(*self.partner_ids.values())}
        if not types:
            # The model uses none of this party's columns, so a fault in one of them must not matter.
            ignored = {str(name) for name in frame.columns}
        known = {name: kind for name, kind in types.items() if name in frame.columns}
        known |= {name: about.types[name] for name in id_columns if name in about.types}
        return PartyTable(
            frame,
            id=about.id,
            types=known,
            drop=[str(name) for name in frame.columns if name in ignored and name not in id_columns],
            partner_ids=partner_ids,
            decimal=dialect.decimal,
            thousands=dialect.thousands,
            dates=dialect.dates,
            name=self.name,
        )


def _column_types(part: ModelPart) -> dict[str, Kind]:
    from colonnade.training.legacy import encoder_of  # here, as it brings torch

    if "types" in part.document:
        return dict(part.document["types"])
    encoder = encoder_of(part)
    return {} if encoder is None else encoder.types


_PARTY_FILE = """\
# The home of {name}. This file never leaves this machine.
# A line that begins with # and a space is a note; one without the space is a setting that is not in use.

[party]
{party}

# Where partners are. 'colonnade pair' adds a block here for each of them. Change an address whenever a partner moves:
# who the partner is does not depend on it, that is decided by the certificate in partners/.
#
#[partners.shop]
{partners}

{table}

[policy]
# What this party takes part in. A rule that is absent allows everything.
{policy}

[engine]
{engine}
"""
_NO_TABLE = """\
# There is no [table]: this party can only play roles that hold none, see 'colonnade methods NAME'. It takes no part in
# alignments and is not told whose rows are shared or scored: with minimum_shared_rows it refuses every training, with
# predictions_per_day every prediction."""
_EXAMPLES: dict[type, dict[str, Any]] = {
    _IdentityTable: {"name": "bank", "listen": "0.0.0.0:7443"},
    _PartnerTable: {"address": "shop.example:7443", "id": "loyalty_card"},
    _PartyTableTable: {
        "source": "customers.csv",
        "id": "customer",
        "label": "churned",
        "positive": "yes",
        "types": {"postcode": "categorical"},
        "drop": ["name", "street"],
        "unlabelled": True,
        "most_categories": 50,
        "separator": ";",
        "quote": '"',
        "encoding": "cp1252",
        "decimal": ",",
        "thousands": ".",
        "dates": "day first",
        "query": "SELECT * FROM customers",
        "table": "sales.customers",
        "matches": "matches.csv",
        "links": "links.csv",
    },
    PolicyRules: {
        "methods": ["splitnn"],
        "partners": ["shop"],
        "never_send": ["PLAIN"],
        "minimum_shared_rows": 500,
        "maximum_runs": 10,
        "maximum_alignments": 10,
        "predictions_per_day": 2000,
        "consent": "policy",
    },
    EngineSettings: {"kind": "pool", "workers": 4, "address": "head.example:6379"},
}


def new_party_file(party: Mapping[str, str | None], table: Mapping[str, str | None] | None) -> str:
    """Return a ``party.toml`` to be filled in, with every setting explained; ``table`` is None for a home without."""
    return _PARTY_FILE.format(
        name=party["name"],
        party=_explained(_IdentityTable, party),
        partners=_explained(_PartnerTable),
        table=_NO_TABLE if table is None else "[table]\n" + _explained(_PartyTableTable, table),
        policy=_explained(PolicyRules),
        engine=_explained(EngineSettings),
    )


def _explained(kind: type, given: Mapping[str, str | None] | None = None) -> str:
    """Return the settings of a table with what they mean; those that are not given as examples, out of use."""
    lines: list[str] = []
    for one in settings_of(kind):
        lines += textwrap.wrap(one.meaning, 120, initial_indent="# ", subsequent_indent="# ")
        value = (given or {}).get(one.name)
        lines.append(f"#{_line(one.name, _EXAMPLES[kind][one.name])}" if value is None else _line(one.name, value))
    return "\n".join(lines)


def _line(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} = {{ {', '.join(_line(*item) for item in value.items())} }}"
    return f"{name} = {toml_value(value)}"


def shape_in_words(party: str, table: PartyTable) -> str:
    """Return lines on the table that a party brings and what looks wrong with it; it has rows unless there is none."""
    if not table.rows:
        return f"{party}: brings no table"
    from colonnade.training import inspect_table  # here, as it brings torch

    return inspect_table(table).in_short(party)


def table_in_words(party: str, table: PartyTable, plan: RunPlan) -> list[str]:
    """Return what a party brings to a run, what its label is taken for, and which class counts as positive."""
    encoder = label_encoder_of(table, plan)
    return [shape_in_words(party, table), *([] if encoder is None else [encoder.sentence])]


def label_encoder_of(table: PartyTable, plan: RunPlan) -> LabelEncoder | None:
    """Return how a run reads this party's label, if it does: ranking has labels of its own."""
    task = plan.config.get("task", "auto")
    if not table.has_label or plan.stage in (ALIGN, "predict") or task == "ranking":
        return None
    return LabelEncoder.of(table, task)


def _columns_in(*settings: str | list[str]) -> list[str]:
    return [name for given in settings for name in ([given] if isinstance(given, str) else given)]


def read_run_file(path: Path, stage: str | None = None) -> RunPlan:
    """Read what the parties agreed on, with the method's defaults written out; ``stage`` stands for the file's."""
    document = _read_toml(path, ("run", "alignment", "config", "evaluate"))
    with _named(path):
        return _plan(document, stage)


def _plan(document: dict[str, Any], stage: str | None) -> RunPlan:
    # Methods need torch, which takes seconds to load; who only reads a home must not wait for it.
    from colonnade.methods import METHODS, method_named

    method = method_named(str(_table(document, "run").get("method", METHODS[0].name)))
    _check_places(document, {"run": _RunTable, "alignment": Alignment, "config": method.config, "evaluate": Evaluate})
    about: _RunTable = validated(_RunTable, document["run"], "run")
    config = configured(method.config, document.get("config", {}), "config")
    plan = RunPlan(
        name=about.name,
        method=method.name,
        roles={role: (given,) if isinstance(given, str) else tuple(given) for role, given in about.roles.items()},
        seed=about.seed,
        config=config_to_json(config),
        evaluate=validated(Evaluate, document.get("evaluate", {}), "evaluate"),
        alignment=validated(Alignment, document.get("alignment", {}), "alignment"),
        stage=about.stage if stage is None else stage,
        after=about.after,
        purpose=about.purpose,
        retention=about.retention,
    )
    method.check_stage(plan.stage)
    method.check_roles(plan)
    return method.in_stage(plan, plan.stage)


def read_party_home(folder: Path, expected: str | None = None) -> PartyHome:
    """Read a party's home; with ``expected``, refuse the home of another party."""
    path = folder / "party.toml"
    if expected is not None and not folder.is_dir():
        above = folder.parent
        names = [one.parent.name for one in above.glob("*/party.toml")] if above.is_dir() else []
        near = get_close_matches(folder.name, names, n=1)
        place = str(above / near[0]) if near else "FOLDER"
        where = shlex.join(["--home", f"{expected}={place}"])
        raise ConfigError(f"The home of '{expected}' is not at {folder}. Say where it is: add `{where}`.")
    if not path.exists():
        raise ConfigError(
            f"{folder.resolve()} is no party's home: it has no party.toml. Go to the home or name it with --home "
            "FOLDER; 'colonnade init NAME' makes one, and 'colonnade demo' two to learn from."
        )
    document = _read_toml(path, ("party", "partners", "table", "policy", "engine"))
    with _named(path):
        return _home(document, path, expected)


def _home(document: dict[str, Any], path: Path, expected: str | None) -> PartyHome:
    kinds = {"party": _IdentityTable, "table": _PartyTableTable, "policy": PolicyRules, "engine": EngineSettings}
    _check_places(document, kinds)
    about: _IdentityTable = validated(_IdentityTable, _table(document, "party"), "party")
    if expected is not None and about.name != expected:
        raise ConfigError(
            f"This home belongs to '{about.name}', but run.toml looks there for '{expected}'. "
            f'Write name = "{expected}" in [party], or say where the home is with --home {expected}=FOLDER.'
        )
    partners: dict[str, _PartnerTable] = {
        partner: validated(_PartnerTable, content, f"partners.{partner}")
        for partner, content in document.get("partners", {}).items()
    }
    table: _PartyTableTable | None = None
    if "table" in document:
        table = validated(_PartyTableTable, document["table"], "table")
    rules: PolicyRules = validated(PolicyRules, document.get("policy", {}), "policy")
    policy = Policy(**vars(rules), file=str(path), lines=_lines_of(path, "policy"))
    check_message_names(policy)
    engine: EngineSettings = validated(EngineSettings, document.get("engine", {}), "engine")
    return PartyHome(
        about.name,
        path.parent,
        policy,
        table,
        about.listen,
        {partner: found.address for partner, found in partners.items() if found.address is not None},
        engine,
        {partner: found.id for partner, found in partners.items() if found.id is not None},
    )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the file before what is wrong in it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_toml(path: Path, tables: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = [str(one.name) for one in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near) if near else "Check the path."
        raise ConfigError(f"There is no file {path}. {hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder. Give the file itself, such as {path / 'run.toml'}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text. Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Check its permissions.") from None
    try:
        document = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}. {_how_to_mend(content, str(error))}") from None
    for key, value in document.items():
        if key not in tables and isinstance(value, dict):
            raise ConfigError(f"There is no table [{key}] in {path.name} files ({path}). {did_you_mean(key, tables)}")
        if key in tables and not isinstance(value, dict):
            raise ConfigError(f"'{key}' in {path} must be a table. Write [{key}] on a line of its own.")
    return document


def _how_to_mend(content: str, said: str) -> str:
    """Return what to write in a line that is not TOML, as far as its look says what was meant.

    >>> _how_to_mend("[run]\\nname = churn", "Invalid value (at line 2, column 8)")
    'In line 2 write: name = "churn"'
    """
    place = re.search(r"at line ([0-9]+)", said)
    lines = content.splitlines()
    # What is wrong at the beginning of a line may be the end of the one before.
    for number in (int(place.group(1)), int(place.group(1)) - 1) if place else ():
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        for meant in (
            re.sub("[“”„‟]", '"', line),
            re.sub(r"(?<=\[)([A-Za-z_]+)$", r"\1]", line.rstrip()),
            re.sub(r"= *(True|False)\b", lambda found: found.group().lower(), line),
            re.sub(r"(= *-?[0-9]+),([0-9]+) *$", r"\1.\2", line),
            re.sub(r"^( *[A-Za-z_]+) *[:=] *([A-Za-z_][^\"'#]*?) *$", r'\1 = "\2"', line),
            re.sub(r'"[^"]*"', lambda found: found.group().replace("\\", "/"), line),
        ):
            if meant != line and _is_toml(meant):
                return f"In line {number} write: {meant.strip()}"
    return "Correct that line."


def _is_toml(line: str) -> bool:
    try:
        tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _check_places(document: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Refuse a setting that stands in another table than its own, or before all tables: it is not misspelt."""
    names = {table: {one.name for one in fields(kind)} for table, kind in kinds.items()}
    given = {table: content for table, content in document.items() if isinstance(content, Mapping)}
    given[""] = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    for table, content in given.items():
        for key in content:
            own = [other for other, known in names.items() if key in known and table in ("", *names)]
            if own and table not in own:
                where = f"in [{table}]" if table else "before the first table"
                raise ConfigError(f"The setting '{key}' stands {where}. Move it to [{own[0]}].")
            if not table and not own:
                known = [name for one in names.values() for name in one]
                raise ConfigError(f"There is no setting '{key}' before the first table. {did_you_mean(key, known)}")


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in document:
        raise ConfigError(f"The table [{name}] is missing. Add it; 'colonnade demo' writes whole files to learn from.")
    found: dict[str, Any] = document[name]
    return found


def _lines_of(path: Path, table: str) -> dict[str, int]:
    """Return the line of every key of a table, so that refusals can point at it; tomllib does not keep lines."""
    lines: dict[str, int] = {}
    current = ""
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if heading := re.match(r"\s*\[([^\[\]]+)\]", line):
            current = heading.group(1).strip()
        elif current == table and (key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line)):
            lines[key.group(1)] = number
    return lines


def check_message_names(policy: Policy) -> None:
    """Refuse a policy that forbids messages which no method has: a slip there would forbid nothing."""
    if not policy.unsent_messages:
        return
    # Methods need torch, which takes seconds to load; most policies name no message.
    from colonnade import alignment
    from colonnade.methods import known_methods

    known = {one.name for method in known_methods()[0] for one in method.declarations}
    known |= {declaration_of(cls).name for cls in alignment.MESSAGES}
    exempt = {declaration_of(cls).name for cls in CONTROL}
    for name in policy.unsent_messages:
        if name in exempt:
            raise ConfigError(
                f"policy.never_send names '{name}', a message of the session itself. These are exempt: no run could do "
                "without, and they carry nothing derived from a table. Leave it out."
            )
        if name not in known:
            # Capitals are the likeliest slip; and a list of all messages would help nobody.
            by_letters = {one.lower(): one for one in [*known, *Protection]}
            close = get_close_matches(name.lower(), sorted(by_letters), n=1)
            hint = f"Did you mean '{by_letters[close[0]]}'? " if close else ""
            raise ConfigError(
                f"policy.never_send names '{name}', which is neither a protection nor a message of any method. {hint}"
                "'colonnade methods NAME' lists a method's messages."
            )
