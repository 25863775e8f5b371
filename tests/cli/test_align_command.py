"""`colonnade align`: with all parties here, and with a partner elsewhere, who is a thread."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.conftest import Project
from tests.cli.test_joining_commands import open_no_door, partner, type_in
from tests.kills.harness import agreed
from tests.unit.launch.test_joining import Group, edit, group_in

from colonnade.errors import AlignmentError, HandshakeRefused, PeerFailed, PolicyRefused, UsageError
from colonnade.launch.home import read_party_home
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import alignment_plan, held_alignment
from colonnade.ledger import Ledger, compare
from colonnade.reports import PartyRun

pytestmark = pytest.mark.timeout(180)

USAGE, POLICY = UsageError.exit_code, PolicyRefused.exit_code
GIVEN = '[alignment]\nprotocol = "given"\n\n[config]'


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Two homes of 400 rows each, of which the shop lacks the last 40."""
    made = group_in(tmp_path)
    monkeypatch.chdir(tmp_path / "bank")
    table = tmp_path / "shop" / "table.csv"
    pd.read_csv(table).head(360).sample(frac=1, random_state=1).to_csv(table, index=False)
    return made


def shop_aligns(group: Group, mode: str | None = None, party: str = "shop") -> PartyRun:
    """Do what the command does with --yes."""
    home = read_party_home(group.home(party))
    with held_alignment(home.folder, "churn", b"") as folder:
        joining = agreed(Joining(alignment_plan(group.plan(), mode), home, folder))
        return joining.take_part()


def history(group: Group, party: str) -> list[dict[str, Any]]:
    path = group.home(party) / "alignments" / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(group: Group, party: str) -> list[str]:
    return [line["event"] for line in history(group, party)]


def rule(group: Group, party: str, text: str) -> int:
    """Add a rule to a party's policy and return its line."""
    path = group.home(party) / "party.toml"
    edit(path, "[policy]\n", f"[policy]\n{text}\n")
    return path.read_text().splitlines().index(text) + 1


def ledger(group: Group, party: str, number: int = 1) -> Ledger:
    return Ledger.read(group.home(party) / "alignments" / "runs" / f"churn-{number:04d}" / "ledger.jsonl")


def names(found: Ledger) -> set[str]:
    return {total.message for total in found.summary()}


# --- with all parties on this machine -----------------------------------------------------------------------------


def test_parties_on_one_machine_align_and_a_run_uses_the_result(project: Project, colonnade: Any) -> None:
    outcome = colonnade("align", "--local", "run.toml", "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    assert outcome.json["mode"] == "both_learn"
    assert outcome.json["folder"] == "alignments/runs/churn-0001"
    bank, shop = (outcome.json["parties"][party] for party in ("bank", "shop"))
    assert (bank["rows"], bank["shared"], bank["rest"], bank["reused"]) == (120, 108, 12, False)
    assert bank["partners"] == {"shop": {"rows": 108, "shared": 108}}
    assert shop["partners"] == {"bank": {"rows": 120, "shared": 108}}
    assert not project.run_folder.exists(), "an alignment is no run"

    run = colonnade("run", "--local", "run.toml", "--no-compare", "--quiet", "--json")
    assert run.code == 0, run.err
    for party in ("bank", "shop"):
        found = Ledger.read(project.run_folder / party / "ledger.jsonl")
        assert "BlindedIds" not in names(found)
        assert [entry.content["reused"] for entry in found.entries if entry.kind == "aligned"] == [True]
    assert "found before and used again" in (project.run_folder / "report.html").read_text()
    assert colonnade("audit", "verify", "alignments/runs/churn-0001").code == 0
    assert not any(cell in outcome.out + outcome.err for cell in project.cells())


# --- with a partner -----------------------------------------------------------------------------------------------


def test_both_learn_and_each_has_a_ledger(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--yes", "../run.toml")
    assert outcome.code == 0, outcome.err
    assert "Consent: given by --yes." in outcome.err
    first = next(line.split() for line in outcome.out.splitlines() if line.startswith("bank"))
    assert first[:5] == ["bank", "label_holder", "400", "360", "40"]
    assert "All parties know which of their rows all of them share." in outcome.out
    assert "The result is kept" in outcome.out
    assert ended[0].overlap["shared"] == 360
    assert not (group.home("bank") / "runs").exists()
    compare(ledger(group, "bank"), ledger(group, "shop"))
    assert not list(group.homes.folder.rglob("unfinished-*")), "secrets are gone"

    with partner(lambda: shop_aligns(group)):
        again = colonnade("align", "--yes", "../run.toml", "--json")
    assert again.json["parties"]["bank"]["reused"] is True
    assert "BlindedIds" not in names(ledger(group, "bank", 2))
    for party in ("bank", "shop"):
        assert events(group, party) == ["begun", "found"], "a result used again is no new alignment"
    assert (history(group, "shop")[0]["own"], history(group, "shop")[0]["theirs"]) == (360, 400)


def test_a_changed_table_is_aligned_anew(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group)):
        colonnade("align", "--yes", "../run.toml")
    table = group.home("shop") / "table.csv"
    pd.read_csv(table).head(300).to_csv(table, index=False)
    with partner(lambda: shop_aligns(group)):
        outcome = colonnade("align", "--yes", "../run.toml", "--json")
    assert outcome.json["parties"]["bank"]["shared"] == 300
    assert events(group, "bank") == ["begun", "found"] * 2


def test_size_only_tells_all_how_many_and_nobody_which(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group, "size_only")) as ended:
        outcome = colonnade("align", "--size-only", "--yes", "../run.toml")
    assert outcome.code == 0, outcome.err
    assert "360" in outcome.out
    assert "nobody knows which" in outcome.out
    assert ended[0].overlap == {
        "rows": 360,
        "partners": {"bank": {"rows": 400, "shared": 360}},
        "shared": 360,
        "rest": 0,
        "reused": False,
        "hints": [],
    }
    assert "SharedCount" in names(ledger(group, "bank"))
    assert "SharedRows" not in names(ledger(group, "bank"))
    assert not list(group.homes.folder.rglob("*.rows"))


def test_one_learns_tells_the_lead_only(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group, "one_learns")) as ended:
        outcome = colonnade("align", "--mode", "one_learns", "--yes", "../run.toml", "--json")
    assert outcome.json["parties"]["bank"]["shared"] == 360
    found = ended[0].overlap
    assert (found["shared"], found["rest"], found["partners"]["bank"]["shared"]) == (None, None, None)
    assert names(ledger(group, "shop")) & {"SharedRows", "SharedCount"} == set()


def test_parties_must_give_the_same_mode(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--size-only", "--yes", "../run.toml")
    assert outcome.code != 0
    assert "alignment.mode" in outcome.message or "alignment.mode" in str(ended[0])
    assert isinstance(ended[0], HandshakeRefused | PeerFailed)
    assert events(group, "bank") == []


def test_a_run_and_an_alignment_do_not_meet(group: Group, colonnade: Any) -> None:
    with partner(lambda: group.take_part("shop")) as ended:
        outcome = colonnade("align", "--yes", "../run.toml")
    assert outcome.code != 0
    assert "(align)" in outcome.message or "(align)" in str(ended[0])


@pytest.mark.parametrize("mode", ["both_learn", "one_learns", "size_only"])
def test_the_operator_sees_exactly_what_is_sent(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    type_in(monkeypatch, "y\n")
    with partner(lambda: shop_aligns(group, mode)):
        outcome = colonnade("align", "--mode", mode, "../run.toml")
    assert outcome.code == 0, outcome.err
    assert "An alignment for the run 'churn'" in outcome.err
    shown = outcome.err.split("[y/N]")[0]
    own = {one.message for one in ledger(group, "bank").summary() if one.direction == "sent"}
    for message in ("AlignmentOpening", "BlindedIds", "SharedRows", "SharedCount", "GivenRows", "CutGradient"):
        assert (message in shown) == (message in own), message
    assert "its word alone" not in shown


@pytest.mark.parametrize("command", ["align", "run"])
def test_among_three_the_operator_is_told_what_the_lead_can_claim(
    command: str, tmp_path: Path, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_in(tmp_path, ("bank", "shop", "telco"))
    open_no_door(monkeypatch)
    for party in ("shop", "bank"):
        monkeypatch.chdir(tmp_path / party)
        shown = " ".join(colonnade(command, "../run.toml").err.split())
        assert ("That telco has them as well is its word alone." in shown) is (party == "shop")


def test_without_consent_nothing_is_sent_and_nothing_left(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    outcome = colonnade("align", "../run.toml")
    assert outcome.code == POLICY
    assert "--yes" in outcome.message
    assert not list((group.home("bank") / "alignments").rglob("*.json*"))
    assert list((group.home("bank") / "alignments" / "runs").iterdir()) == []


# --- policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("mode", ["both_learn", "size_only"])
def test_who_asks_too_often_is_refused_before_a_blinded_id_leaves(
    group: Group, colonnade: Any, party: str, mode: str
) -> None:
    line = rule(group, party, "maximum_alignments = 1")
    for rows in (360, 350):
        table = group.home("shop") / "table.csv"
        pd.read_csv(table).head(rows).to_csv(table, index=False)
        with partner(lambda: shop_aligns(group, mode)) as ended:
            outcome = colonnade("align", "--mode", mode, "--yes", "../run.toml")
    refused = outcome.message if party == "bank" else str(ended[0])
    assert "policy.maximum_alignments (" in refused
    assert f"party.toml, line {line}): 1 of at most 1 alignments" in refused
    assert outcome.code == POLICY if party == "bank" else isinstance(ended[0], PolicyRefused)
    assert events(group, party) == ["begun", "found", "refused"]
    kept = ledger(group, party, 2)
    assert [one.content["rule"] for one in kept.entries if one.kind == "refused"] == ["maximum_alignments"]
    for each in ("bank", "shop"):
        assert not names(ledger(group, each, 2)) & {"BlindedIds", "TwiceBlindedIds"}


def test_a_run_within_the_budget_uses_the_result_of_an_alignment(group: Group, colonnade: Any) -> None:
    rule(group, "shop", "maximum_alignments = 1")
    rule(group, "bank", "maximum_runs = 1")
    with partner(lambda: shop_aligns(group)):
        assert colonnade("align", "--yes", "../run.toml").code == 0
    with partner(lambda: group.take_part("shop")):
        outcome = colonnade("run", "--yes", "--no-compare", "--quiet", "../run.toml")
    assert outcome.code == 0, outcome.err
    assert events(group, "shop") == ["begun", "found"]
    assert "BlindedIds" not in names(group.ledger("shop"))


@pytest.mark.parametrize("mode", ["both_learn", "one_learns", "size_only"])
def test_a_lead_that_finds_too_few_tells_nobody(group: Group, colonnade: Any, mode: str) -> None:
    line = rule(group, "bank", "minimum_shared_rows = 200")
    table = group.home("shop") / "table.csv"
    frame = pd.read_csv(table)
    frame.loc[150:, "id"] += 10_000
    frame.to_csv(table, index=False)
    with partner(lambda: shop_aligns(group, mode)) as ended:
        outcome = colonnade("align", "--mode", mode, "--yes", "../run.toml")
    assert outcome.code == POLICY
    assert f"policy.minimum_shared_rows (party.toml, line {line}): only 150 rows" in outcome.message.replace("./", "")
    assert isinstance(ended[0], PeerFailed)
    assert "150" not in str(ended[0])
    assert not names(ledger(group, "shop")) & {"SharedRows", "SharedCount"}
    assert not list(group.homes.folder.rglob("*.rows"))
    assert not list(group.home("bank").rglob("state.json")), "the secret is gone"


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_tables_too_small_for_the_minimum_are_not_aligned_at_all(group: Group, colonnade: Any, party: str) -> None:
    rule(group, party, "minimum_shared_rows = 361")
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--yes", "../run.toml")
    assert "only 360 rows can be shared" in (outcome.message if party == "bank" else str(ended[0]))
    assert events(group, party) == []
    assert "BlindedIds" not in names(ledger(group, party))


def test_a_minimum_that_cannot_be_checked_refuses_one_learns(group: Group, colonnade: Any) -> None:
    rule(group, "shop", "minimum_shared_rows = 10")
    with partner(lambda: shop_aligns(group, "one_learns")) as ended:
        colonnade("align", "--mode", "one_learns", "--yes", "../run.toml")
    assert isinstance(ended[0], PolicyRefused)
    assert "is not told how many" in str(ended[0])


# --- rows that another tool matched -------------------------------------------------------------------------------


def given(group: Group, **lists: pd.DataFrame) -> None:
    edit(group.homes.folder / "run.toml", "[config]", GIVEN)
    for party, frame in lists.items():
        file = f"matches.{'csv' if party == 'bank' else 'parquet'}"
        frame.to_csv(group.home(party) / file, index=False) if party == "bank" else frame.to_parquet(
            group.home(party) / file, index=False
        )
        edit(group.home(party) / "party.toml", 'id = "id"', f'id = "id"\nmatches = "{file}"')


def test_matches_of_another_tool_are_taken_from_csv_and_parquet(group: Group, colonnade: Any) -> None:
    ids = list(range(300, 0, -1))
    given(group, bank=pd.DataFrame({"id": ids}), shop=pd.DataFrame({"id": ids}))
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--yes", "../run.toml", "--json")
    assert outcome.code == 0, (outcome.err, ended)
    assert outcome.json["protocol"] == "given"
    assert outcome.json["parties"]["bank"]["shared"] == 300
    assert names(ledger(group, "bank")) >= {"GivenRows"}
    assert "BlindedIds" not in names(ledger(group, "bank"))
    with partner(lambda: group.take_part("shop")) as ended:
        run = colonnade("run", "--yes", "--no-compare", "--quiet", "--json", "../run.toml")
    assert run.code == 0, (run.err, ended)
    assert run.json["parties"]["bank"]["shared_rows"] == 300


def test_tokens_match_rows_that_parties_name_differently(group: Group, colonnade: Any) -> None:
    table = group.home("shop") / "table.csv"
    frame = pd.read_csv(table)
    frame["id"] = [f"s{number}" for number in frame["id"]]
    frame.to_csv(table, index=False)
    tokens = [f"{number:05d}" for number in range(50)]
    given(
        group,
        bank=pd.DataFrame({"id": range(50), "match": tokens}),
        shop=pd.DataFrame({"id": [f"s{number}" for number in range(50)], "match": tokens}),
    )
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--yes", "../run.toml", "--json")
    assert outcome.code == 0, (outcome.err, ended)
    assert outcome.json["parties"]["bank"]["shared"] == 50


@pytest.mark.parametrize("theirs", [range(99), range(99, -1, -1), range(1, 101)], ids=["shorter", "order", "others"])
def test_lists_that_differ_are_refused(group: Group, colonnade: Any, theirs: range) -> None:
    given(group, bank=pd.DataFrame({"id": range(100)}), shop=pd.DataFrame({"id": theirs}))
    with partner(lambda: shop_aligns(group)) as ended:
        outcome = colonnade("align", "--yes", "../run.toml")
    assert outcome.code == AlignmentError.exit_code
    assert "The rows given as matched differ" in outcome.message
    assert isinstance(ended[0], AlignmentError | PeerFailed)


def test_given_without_a_list_says_where_to_name_one(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    given(group)
    outcome = colonnade("align", "--yes", "../run.toml")
    assert outcome.code == USAGE
    assert 'Add matches = "FILE" to [table]' in outcome.message


def test_a_list_of_rows_the_table_does_not_have_is_told_before_a_door_opens(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    given(group, bank=pd.DataFrame({"id": [1, 2, 987654321]}))
    outcome = colonnade("align", "--yes", "../run.toml")
    assert outcome.code == USAGE
    assert "1 of 3 ids in the list of matches" in outcome.message
    assert "987654321" not in outcome.message
    assert list((group.home("bank") / "alignments" / "runs").iterdir()) == []


def test_a_list_that_a_run_does_not_use_is_a_note(group: Group, colonnade: Any) -> None:
    given(group, bank=pd.DataFrame({"id": [1]}))
    edit(group.homes.folder / "run.toml", '"given"', '"ecdh"')
    with partner(lambda: shop_aligns(group)):
        outcome = colonnade("align", "--yes", "../run.toml", "--json")
    assert outcome.code == 0, outcome.err
    assert "Note: run.toml finds shared rows by ecdh" in outcome.err
    assert outcome.json["parties"]["bank"]["shared"] == 360


def test_a_run_does_not_resume_with_another_list(group: Group) -> None:
    given(group, bank=pd.DataFrame({"id": range(100)}))
    home, plan = read_party_home(group.home("bank")), group.plan()
    from colonnade.launch.party_folder import PartyFolder

    folder = PartyFolder(group.home("bank") / "runs" / "churn")
    folder.begin(plan, home.read_table(plan.alignment))
    folder.begin(plan, home.read_table(plan.alignment))
    pd.DataFrame({"id": range(99)}).to_csv(group.home("bank") / "matches.csv", index=False)
    with pytest.raises(UsageError, match="has changed since"):
        folder.begin(plan, home.read_table(plan.alignment))


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "size"], "There is no mode 'size'. Did you mean 'size_only'?"),
        (["--mode", "one_learns", "--size-only"], "exclude each other"),
        (["--home", "nowhere"], "no party's home"),
        (["--local", "--home", "nowhere"], "--home"),
        (["--simulate"], "o such option: --simulate"),
    ],
)
def test_a_mistake_is_told_before_anything_is_opened(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    open_no_door(monkeypatch)
    outcome = colonnade("align", "../run.toml", *words)
    assert outcome.code == USAGE
    assert said in " ".join(outcome.message.split())
    assert not (group.home("bank") / "alignments").exists()


def test_a_mode_that_cannot_be_trained_on_is_refused_by_run(group: Group, colonnade: Any) -> None:
    edit(group.homes.folder / "run.toml", "[config]", '[alignment]\nmode = "size_only"\n\n[config]')
    with partner(lambda: group.take_part("shop")):
        outcome = colonnade("run", "--yes", "--quiet", "../run.toml")
    assert outcome.code == USAGE
    assert "'colonnade align' to look only" in outcome.message


def test_given_rows_are_known_to_all(group: Group, colonnade: Any) -> None:
    lists = pd.DataFrame({"id": range(10)})
    given(group, bank=lists, shop=lists)
    with partner(lambda: shop_aligns(group, "size_only")):
        outcome = colonnade("align", "--size-only", "--yes", "../run.toml")
    assert outcome.code == USAGE
    assert "another tool matched" in outcome.message


def test_help_has_examples(colonnade: Any) -> None:
    outcome = colonnade("align", "--help")
    assert outcome.code == 0
    assert "colonnade align --size-only run.toml" in outcome.out


def test_what_a_home_keeps_is_for_its_owner_only_and_no_run(group: Group, colonnade: Any) -> None:
    with partner(lambda: shop_aligns(group)):
        colonnade("align", "--yes", "../run.toml")
    alignments = group.home("bank") / "alignments"
    assert stat.S_IMODE(alignments.stat().st_mode) == 0o700
    for path in alignments.rglob("*"):
        if path.is_file() and path.name not in ("ledger.jsonl", "metrics.jsonl", "status.json"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        elif path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert json.loads(colonnade("status", "--json").out) == {"runs": []}
    assert replace(alignment_plan(group.plan()), stage="train") == group.plan()
