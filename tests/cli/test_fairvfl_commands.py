"""A model that an audit refuses does not score, however the parties were started."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kills.harness import agreed, free_ports
from tests.unit.launch.test_joining import together
from tests.unit.methods.fairvfl.worlds import SMALL, UNFAIR, told_gender

from colonnade.errors import PeerFailed, UsageError
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.identity import make_home, pin_partner
from colonnade.launch.join import Joining
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.methods.fairvfl import METHOD

pytestmark = pytest.mark.timeout(240)

PARTIES = ("bank", "one", "two", "server", "state")
SCORED = ("bank", "one", "two")
RUN = """\
[run]
name = "model"
method = "fairvfl"
seed = 7

[run.roles]
label_holder = "bank"
feature_holder = ["one", "two"]
aggregator = "server"
attribute_holder = "state"

[evaluate]
test_fraction = 0.25
validation_fraction = 0.15

[config]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five homes whose task cannot be done without gender, and settings that do not remove it."""
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in {**SMALL, **UNFAIR}.items()}
    (tmp_path / "run.toml").write_text(
        RUN + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items() if value is not None)
    )
    for party in PARTIES:
        (tmp_path / party).mkdir()
        text = f'[party]\nname = "{party}"\n'
        if party != "server":
            text += '[table]\nsource = "people.csv"\nid = "id"\n' + ('label = "y"\n' if party == "bank" else "")
        (tmp_path / party / "party.toml").write_text(text)
    for party, frame in told_gender(rows=480).items():
        frame.to_csv(tmp_path / party / "people.csv", index=False)
        frame.head(20).drop(columns="y", errors="ignore").to_csv(tmp_path / party / "new.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("how", ["--simulate", pytest.param("--local", marks=pytest.mark.slow)])
def test_a_model_that_an_audit_refused_does_not_score_until_it_is_trained_anew(
    folder: Path, colonnade: Callable[..., Any], how: str
) -> None:
    run = ("run", how, "run.toml", "--quiet", "--no-compare")
    tables = [word for party in SCORED for word in ("--table", f"{party}={party}/new.csv")]
    trained = colonnade(*run)
    assert trained.code == 0, trained.err
    assert "Score: " in trained.out
    audited = colonnade(*run, "--stage", "audit")
    assert audited.code == 0, audited.err
    assert "so it is refused to be used" in " ".join(audited.out.split())
    scored = colonnade("predict", "runs/model", *tables)
    assert scored.code == UsageError.exit_code
    assert "almost as much of gender from this model as from a plain one" in scored.message
    assert "Refused:</strong> An audit read" in Path(folder, "runs/model-audit/report.html").read_text()
    assert list(Path(folder, "runs").glob("*/*/refusal.json")), "at the label holder"
    assert not list(Path(folder, "runs").glob("*/one/refusal.json"))
    shown = colonnade("report", "runs/model")
    assert shown.code == 0, shown.err
    assert "Refused:</strong> An audit read" in Path(folder, "runs/model/report.html").read_text()
    again = colonnade("run", "--simulate", *run[2:], "--overwrite")
    assert again.code == 0, again.err
    assert colonnade("predict", "runs/model", *tables, "--output", "scores.csv").code == 0


def test_homes_apart_keep_a_refusal_with_the_label_holders_model(folder: Path) -> None:
    ports = dict(zip(PARTIES, free_ports(len(PARTIES)), strict=True))
    for party, port in ports.items():
        make_home(folder / party, party, f"127.0.0.1:{port}")
        own = folder / party / "party.toml"
        own.write_text(own.read_text().replace("[party]\n", f'[party]\nlisten = "127.0.0.1:{port}"\n'))
    for party in PARTIES:
        for peer in PARTIES:
            if peer != party:
                certificate = (folder / peer / "certificate.pem").read_bytes()
                pin_partner(folder / party, certificate, f"127.0.0.1:{ports[peer]}")

    def joining(party: str, stage: str) -> Joining:
        plan = read_run_file(folder / "run.toml", stage)
        run_folder = RunFolder(folder / party / "runs" / plan.folder_name)
        return agreed(Joining(plan, read_party_home(folder / party), run_folder))

    def take_part(party: str, stage: str) -> Any:
        mine = joining(party, stage)
        return mine.run()

    def score(party: str) -> Any:
        plan = METHOD.in_stage(read_run_file(folder / "run.toml"), "predict")
        run_folder = RunFolder(folder / party / "runs" / "model")
        predicting = agreed(Joining(plan, read_party_home(folder / party), run_folder))
        file = None if party == "server" else str(folder / party / "new.csv")
        return predicting.predict(file)

    for stage in ("train", "audit"):
        ended = together({party: partial(take_part, party, stage) for party in PARTIES})
        assert all(isinstance(one, Run) for one in ended.values()), ended
    assert [party for party in PARTIES if (folder / party / "runs" / "model" / "refusal.json").exists()] == ["bank"]
    ended = together({party: partial(score, party) for party in (*SCORED, "server")})
    assert isinstance(ended["bank"], UsageError)
    assert "almost as much of gender" in str(ended["bank"])
    assert all(isinstance(ended[party], PeerFailed) for party in ("one", "two", "server")), ended
