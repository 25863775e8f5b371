"""What holds for every engine: names, contexts, parts, failures, and how one is opened."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from colonnade.engine import INLINE, Engine, EngineSettings, Work, open_engine
from colonnade.engine.calls import KEPT, Caller, function_named
from colonnade.engine.inline import InlineEngine
from colonnade.engine.probe import Prepared
from colonnade.errors import ConfigError, DeclarationError, EngineFailed, PeerFailed

PREPARE = "colonnade.engine.probe:prepare"


def work(function: str, context: bytes = b"context") -> Work:
    return Work(f"colonnade.engine.probe:{function}", PREPARE, context)


@pytest.fixture(params=["inline", "pool"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with open_engine(request.param, 1 if request.param == "inline" else 2) as opened:
        yield opened


def test_all_engines_give_the_same_bytes() -> None:
    draw = random.Random(7)
    with open_engine("pool", 2) as pool:
        for count in (0, 1, 2, *(draw.randrange(3, 40) for _ in range(6))):
            chunks = [draw.randbytes(draw.randrange(5000)) for _ in range(count)]
            asked = work("digest", draw.randbytes(draw.choice([0, 10, 100_000])))
            assert pool.map(asked, chunks) == INLINE.map(asked, chunks)
        large = [draw.randbytes(3_000_000) for _ in range(3)]
        assert pool.map(work("echo"), large) == large


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "colonnade:simulate",
        "colonnade.engine.probe",
        "colonnade.engine.probe:echo.__class__",
        "colonnade.engine..probe:echo",
        "colonnade.engine.probe:echo\n",
        "colonnadex.engine:echo",
        "",
    ],
)
def test_only_functions_of_colonnade_can_be_named(name: str) -> None:
    with pytest.raises(DeclarationError, match="An engine cannot run"):
        Work(name, PREPARE, b"")
    with pytest.raises(DeclarationError, match="An engine cannot run"):
        Work("colonnade.engine.probe:echo", name, b"")


@pytest.mark.parametrize(
    "name",
    [
        "colonnade.engine.pool:os",
        "colonnade.engine.pool:ThreadPoolExecutor",
        "colonnade.engine.opening:dataclass",
        "colonnade.engine.calls:KEPT",
        "colonnade.engine.probe:absent",
        "colonnade.engine.absent:echo",
    ],
)
def test_what_a_module_imported_or_does_not_have_cannot_be_run(name: str, engine: Engine) -> None:
    with pytest.raises(DeclarationError, match="An engine cannot run"):
        engine.map(Work(name, PREPARE, b""), [b"1", b"2"])
    with pytest.raises(DeclarationError, match="An engine cannot run"):
        function_named(name)


def test_an_error_of_colonnade_is_passed_on_as_it_is(engine: Engine) -> None:
    with pytest.raises(ConfigError, match=r"^A setting is wrong\. Correct it\.$") as caught:
        engine.map(work("fail"), [b"foreseen", b"foreseen"])
    assert caught.value.exit_code == 2
    assert engine.map(work("echo"), [b"1", b"2"]) == [b"1", b"2"], "the engine is still of use"


def test_any_other_error_is_named_without_its_words(engine: Engine) -> None:
    with pytest.raises(
        EngineFailed, match=r"probe:fail failed with an unforeseen ValueError at probe.py:\d+"
    ) as caught:
        engine.map(work("fail"), [b"secret", b"secret"])
    assert "secret" not in str(caught.value)


def test_an_error_with_arguments_of_its_own_can_be_told() -> None:
    from colonnade.engine.calls import raise_again, told

    with pytest.raises(PeerFailed, match="'bank' stopped at step 3: ill"):
        raise_again(*told(PeerFailed("bank", 3, "ill")))
    with pytest.raises(EngineFailed, match="odd"):
        raise_again("did_you_mean", "odd")


def test_a_function_must_return_bytes(engine: Engine) -> None:
    with pytest.raises(DeclarationError, match="returned Prepared where bytes were expected"):
        engine.map(Work("colonnade.engine.probe:wrong", PREPARE, b""), [b"1", b"2"])


def test_work_does_not_show_its_context() -> None:
    assert "key" not in repr(work("echo", b"key"))


def test_the_digest_is_taken_once() -> None:
    asked = work("echo")
    assert asked.digest is asked.digest
    assert asked.digest == work("digest").digest != work("echo", b"other").digest


def test_inline_prepares_a_context_once_and_keeps_a_few() -> None:
    engine = InlineEngine()
    before = Prepared.count
    for _ in range(3):
        engine.map(work("echo"), [b"1", b"2"])
    assert Prepared.count == before + 1
    for number in range(KEPT):
        engine.map(work("echo", b"%d" % number), [b""])
    engine.map(work("echo"), [b"1"])
    assert Prepared.count == before + 1 + KEPT + 1
    engine.close()
    engine.map(work("echo"), [b"1"])
    assert Prepared.count == before + 1 + KEPT + 2


def test_a_context_that_could_not_be_prepared_is_tried_again() -> None:
    caller = Caller()

    def broken() -> memoryview:
        raise ConfigError("not yet")

    with pytest.raises(ConfigError, match="not yet"):
        caller.call("colonnade.engine.probe:echo", PREPARE, b"", broken, b"1")
    assert caller.call("colonnade.engine.probe:echo", PREPARE, b"", lambda: memoryview(b""), b"1") == b"1"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100, 1001])
@pytest.mark.parametrize("seconds_each", [0.0, 1e-5, 1e-3, 0.004, 1.0])
def test_parts_cover_everything_once_and_pay_off(count: int, seconds_each: float) -> None:
    with open_engine("pool", 3) as pool:
        parts = pool.parts(count, seconds_each)
    assert [place for part in parts for place in range(count)[part]] == list(range(count))
    assert all(part.stop > part.start for part in parts)
    assert len(parts) <= 12
    if count and count * seconds_each < 0.01:
        assert len(parts) == 1
    if len(parts) > 1:
        assert min(part.stop - part.start for part in parts) * seconds_each > 0.0025
    if len(parts) > 3:
        assert len(parts) % 3 == 0
    assert INLINE.parts(count, seconds_each) == ([slice(0, count)] if count else [])


def test_large_work_gives_every_worker_several_parts() -> None:
    with open_engine("pool", 2) as pool:
        assert len(pool.parts(10_000, 0.001)) == 8
    with open_engine("pool", 1) as alone:
        assert len(alone.parts(10_000, 0.001)) == 1


def test_opening() -> None:
    with open_engine() as plain, open_engine("auto", 1) as single, open_engine("auto", 3) as several:
        assert (plain.name, single.name, several.name, several.workers) == ("inline", "inline", "pool", 3)
    with EngineSettings(kind="pool", workers=2).open() as pool:
        assert (pool.name, pool.workers) == ("pool", 2)


def test_parties_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.engine.opening.usable_cores", lambda: 8)
    assert EngineSettings().shared_by(3).workers == 2
    assert EngineSettings().shared_by(20).open().name == "inline"
    assert EngineSettings(workers=5).shared_by(3).workers == 5
    assert EngineSettings(kind="inline").shared_by(3).workers is None
    assert EngineSettings(kind="ray", address="ray:6379").shared_by(3).workers is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("pol", None, None), "There is no engine 'pol'. Did you mean 'pool'?"),
        (("pool", 0, None), "engine.workers must be a whole number of 1 or more. Got 0"),
        (("pool", True, None), "engine.workers must be a whole number"),
        (("pool", 1.5, None), "engine.workers must be a whole number"),
        (("inline", 2, None), "The engine 'inline' has no workers"),
        (("pool", 2, "host:1"), "The engine 'pool' has no address"),
    ],
)
def test_wrong_settings_are_refused_with_what_to_do(given: tuple[str, int, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine(*given)
    assert str(caught.value).startswith(said)


def test_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "none")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'colonnade\[ray\]'"):
        open_engine("ray")


def test_a_worker_is_light() -> None:
    code = (
        "import colonnade.engine.worker, sys;"
        "print([m for m in ('torch', 'pandas', 'numpy', 'ray', 'pickle', 'multiprocessing') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
