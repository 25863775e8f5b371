"""Two versions of the package in one run: they train and score together, and their reports say so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests import tally

from colonnade import Launch
from colonnade.errors import OtherVersion
from colonnade.session import handshake


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_a_newer_and_an_older_package_train_and_score_together(
    monkeypatch: pytest.MonkeyPatch, transport: str, tmp_path: Path
) -> None:
    tally.install(monkeypatch)
    alike = tally.simulate(launch=Launch(transport=transport))
    real = handshake._hello

    def hello(session: Any) -> Any:
        made = real(session)
        return dataclasses.replace(made, version="0.1.9-<i>") if session.party == "shop" else made

    monkeypatch.setattr(handshake, "_hello", hello)
    with pytest.warns(OtherVersion) as noted:
        run = tally.simulate(launch=Launch(transport=transport), folder=tmp_path / "run")
    assert any("'bank' runs" in str(one.message) and "'shop' 0.1.9-<i>" in str(one.message) for one in noted)
    assert run.parts["bank"].tensors["total"] == alike.parts["bank"].tensors["total"]
    with pytest.warns(OtherVersion):
        assert len(run.predict(tally.tables())) == 100
    page = run.report(tmp_path / "report.html").read_text()
    assert page.count("shop ran 0.1.9-&lt;i&gt;") == 1
    assert page.count("0.1.9-") == 1, "a quiet line, and no box"
    assert run.other_versions == {"shop": "0.1.9-<i>"}
    assert alike.other_versions == {}
