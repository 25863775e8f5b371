"""What each party receives at each level: exactly the sheet's kinds (check 5), and what can be read from them."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.unit.methods.fedcvt.worlds import frames, run_of, settings, watched
from tests.worlds import name_of, received, view

import colonnade as cn
from colonnade.crypto import CipherArray, PrivateKey
from colonnade.errors import OutOfStep
from colonnade.messages import ENCRYPTED, NOISED, PLAIN, open_frame, template_of
from colonnade.methods.fedcvt import METHOD, sealed_cut
from colonnade.methods.fedcvt.messages import Codes, HeldOutCodes
from colonnade.session import Channel, RunPlan
from colonnade.settings import config_to_json

VALIDATED = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2)
OWN = {"bank": 20, "shop": 20}


@functools.cache
def keys() -> dict[str, PrivateKey]:
    return {party: PrivateKey.generate("insecure_test") for party in ("bank", "shop")}


@functools.cache
def played(level: int, **changes: Any) -> cn.Run:
    """Return a run whose frames were kept, and whose keys the test knows."""
    options = {"epochs": 2, "own_batch_size": 20, "threshold": 0.34, "least_keys": 2.0, "shared_width": 2} | changes
    known = keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_cut, "make_key", lambda session, size: known[session.party])
        config = settings(level=level, unique_width=2, **options)
        return run_of(frames("binary", own=OWN), config, evaluate=VALIDATED, launch=cn.Launch(keep_views=True))


def kinds(run: cn.Run, party: str) -> set[str]:
    """Return the sheet's names of what a party received; what the sheet calls control comes as ctl."""
    found = set()
    for _, message in view(run, party):
        step = template_of(message).step
        named = re.search(r"\((\w+)\)", step)
        found.add(named.group(1) if named else "fit" if "fit term" in step else "ctl")
    return found


AT_BANK = {
    0: {"repr_fwd", "eval_fwd", "ctl"},
    1: {"repr_fwd", "eval_fwd", "ctl"},
    2: {"he_repr", "logit_masked", "he_est_logit", "he_al_grad", "wgrad_noised", "he_noise", "fit", "ctl"},
}
AT_SHOP = {
    0: {"repr_grad", "ctl"},
    1: {"repr_grad", "ctl"},
    2: {"he_logit_masked", "he_al_logit", "he_est_grad", "he_wgrad", "he_rgrad", "fit", "ctl"},
}
CONTROL = {
    "bank": {"OwnRows", "PublicModulus", "OpeningShares"},
    "shop": {"Schedule", "EpochVerdict", "Choice", "PublicModulus"},
}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_party_receives_exactly_the_sheets_kinds(level: int) -> None:
    run = played(level)
    assert kinds(run, "bank") == AT_BANK[level]
    assert kinds(run, "shop") == AT_SHOP[level]
    for party, known in CONTROL.items():
        said = {name_of(one) for _, one in view(run, party) if not re.search(r"\(|fit term", template_of(one).step)}
        assert said <= known


def test_shared_codes_cross_with_noise_where_the_pull_is_one_sided_and_nowhere_else() -> None:
    assert kinds(played(2, sealed_pull="one_sided"), "bank") == AT_BANK[2] | {"shared_code"}


def test_without_fit_no_fit_crosses() -> None:
    assert kinds(played(2, sealed_fit="off"), "bank") == AT_BANK[2] - {"fit"}


def test_nothing_is_estimated_during_warm_up() -> None:
    """Section 4 of the sheet: no messages 4 to 7."""
    run = played(2, warmup_epochs=2)
    # Those at the end, by which models are compared, remain.
    assert len(received(run, "shop", "AlignedLogits")) == 1
    assert not received(run, "shop", "EstimateGradient")
    assert not received(run, "bank", "AlignedGradient")


def arrays_of(message: Any) -> list[Any]:
    found: list[Any] = []
    for value in vars(message).values():
        found += list(value) if isinstance(value, tuple) else [value]
    return found


def test_encrypted_kinds_carry_ciphertexts_only() -> None:
    run = played(2)
    seen = 0
    for party in ("bank", "shop"):
        for _, message in view(run, party):
            if re.search(r"\(he_|fit term", template_of(message).step):
                seen += 1
                assert all(isinstance(one, CipherArray) for one in arrays_of(message)), name_of(message)
    assert seen > 50
    for party in ("bank", "shop"):
        # No tensor of codes or gradients anywhere; integers of the plaintext ring are bytes.
        for _, message in view(run, party):
            for one in arrays_of(message):
                assert not isinstance(one, torch.Tensor)
                assert not isinstance(one, np.ndarray) or one.dtype == np.uint8


def test_every_ciphertext_is_under_the_key_that_the_sheet_says() -> None:
    run = played(2)
    mine = {party: key.fingerprint for party, key in keys().items()}
    of_shop = {"SealedCodes", "SealedShares", "MaskedLogits", "MaskedWeightGradient", "SealedCodeGradient"}
    for party in ("bank", "shop"):
        for _, message in view(run, party):
            owner = "shop" if name_of(message) in of_shop else "bank"
            for one in arrays_of(message):
                if isinstance(one, CipherArray):
                    assert one._fingerprint == mine[owner], name_of(message)


def test_what_the_shop_can_decrypt_of_masked_kinds_is_uniform() -> None:
    run, key = played(2), keys()["shop"]
    arrays: list[CipherArray] = []
    for one in received(run, "shop", "MaskedLogits"):
        arrays += [*one.shared, one.others]
    for one in received(run, "shop", "MaskedWeightGradient"):
        arrays += one.values
    found = [int(one) for array in arrays for one in key.decrypt_integers(array.ciphertexts)]
    assert len(found) > 60
    assert len(set(found)) == len(found)
    low = np.frombuffer(b"".join(one.to_bytes(256, "little")[:96] for one in found), dtype=np.uint8)
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 1e-3
    assert stats.chisquare(np.bincount([8 * one // int(key.n) for one in found], minlength=8)).pvalue > 1e-4


def test_the_banks_share_alone_is_noise() -> None:
    """OpeningShares and WeightUpdate are all it gets of the weights."""
    (opening,) = received(played(2), "bank", "OpeningShares")
    sizes = [abs(one) for one in opening.values]
    assert np.median([float(one) for one in sizes]) > 2**90, "weights take 56 bits"


def test_nothing_encrypted_or_masked_comes_twice() -> None:
    seen: dict[int, int] = {}
    run = played(2)
    for party in ("bank", "shop"):
        for _, message in view(run, party):
            for one in arrays_of(message):
                for cipher in one.ciphertexts if isinstance(one, CipherArray) else ():
                    seen[int(cipher)] = seen.get(int(cipher), 0) + 1
    assert len(seen) > 500
    assert max(seen.values()) == 1


# Declarations


def plan_of(stage: str = "train", **changes: Any) -> RunPlan:
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    config = config_to_json(settings(**changes))
    return RunPlan(name="run", method="fedcvt", roles=roles, seed=1, config=config, stage=stage)


@pytest.mark.parametrize("stage", ["train", "predict"])
def test_declarations_follow_level_and_defence(stage: str) -> None:
    """What is not declared cannot be sent, so that the consent screen is right."""

    def names(**changes: Any) -> dict[str, Any]:
        return {one.name: one.protection for one in METHOD.declarations_in(plan_of(stage, **changes))}

    codes = {"Codes", "HeldOutCodes"} if stage == "train" else {"HeldOutCodes"}
    for level, protection in ((0, PLAIN), (1, NOISED)):
        found = names(level=level, sealed_pull="one_sided")
        assert {name: found[name] for name in codes} == dict.fromkeys(codes, protection)
        assert not {"SealedCodes", "OpenedLogits", "AlignedLogits", "SharedCodes", "FitCodes"} & set(found)
    sealed = names(level=2)
    assert not {"Codes", "HeldOutCodes", "CodeGradient", "SharedCodes"} & set(sealed)
    assert ("SharedCodes" in names(level=2, sealed_pull="one_sided")) is (stage == "train")
    if stage == "train":
        assert names()["CodeGradient"] == PLAIN
        assert names(defence="marvell")["CodeGradient"] == NOISED
        assert {"FitCodes", "FitGradient"} <= set(sealed)
        assert not {"FitCodes", "FitGradient"} & set(names(level=2, sealed_fit="off"))
    for name in ("SealedCodes", "AlignedLogits"):
        assert sealed[name] == ENCRYPTED
    for name in ("OpenedLogits", "EstimatedLogits"):
        assert sealed[name] == PLAIN, "the receiver reads it"


def test_what_a_run_gives_away_beside_its_messages_follows_from_its_settings() -> None:
    def first_words(stage: str = "train", **changes: Any) -> list[str]:
        return [one.split(":")[0] for one in METHOD.cautions(plan_of(stage, **changes))]

    secret = {"secret_start": True}
    assert first_words() == ["Known start"]
    assert first_words(**secret) == []
    assert first_words(level=1, **secret) == ["Level 1"]
    assert first_words(level=2, sealed_pull="one_sided", **secret) == ["Level 2", "Codes with noise"]
    assert first_words("predict", level=2, sealed_pull="one_sided") == ["Level 2"]
    assert first_words(level=2, candidates=("local",)) == []


@pytest.mark.parametrize(("level", "kind"), [(1, Codes), (2, HeldOutCodes)])
def test_codes_in_the_clear_abort_a_run_of_a_higher_level(level: int, kind: type[Any]) -> None:
    """An unknown kind aborts."""
    send = Channel.send
    done: list[bool] = []
    (clear,) = (one for one in template_of(kind).every_declaration() if one.protection == PLAIN)

    def sent(channel: Channel, message: Any) -> None:
        if channel.party == "shop" and name_of(message) in ("Codes", "SealedCodes") and not done:
            done.append(True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(channel._sends, kind, clear)
                send(channel, kind(torch.zeros(3, 4)))
        else:
            send(channel, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "send", sent)
        with pytest.raises(OutOfStep):
            run_of(frames("binary", own=OWN), settings(level=level, epochs=1, least_keys=2.0))
    assert done


# What codes and gradients are


def test_at_level_0_only_codes_of_ones_own_rows_cross_and_no_id() -> None:
    with watched() as found:
        run = run_of(
            frames("binary", own=OWN), settings(epochs=1), evaluate=VALIDATED, launch=cn.Launch(keep_views=True)
        )
    for one, (shared, own) in zip(received(run, "bank", "Codes"), found.steps["shop"], strict=True):
        assert one.values.shape == (len(shared) + len(own), 8)
    for one, (shared, own) in zip(received(run, "shop", "CodeGradient"), found.steps["shop"], strict=True):
        assert one.values.shape == (len(shared) + len(own), 8)
    codes = {one.schema for one in template_of(Codes).every_declaration()}
    assert not [frame for _, frame in run.views["shop"] if open_frame(frame)[0].schema in codes]


def test_the_bank_keeps_only_codes_of_anchors_at_open_levels_and_scores_of_them_at_level_2() -> None:
    for level in (0, 1):
        names = {name for name in played(level).parts["bank"].tensors if "encoders" not in name and "heads" not in name}
        assert names == {f"fedcvt/anchors.{place}.{kind}" for place in range(2) for kind in ("shared", "unique")}
    sealed = {name for name in played(2).parts["bank"].tensors if "encoders" not in name and "heads" not in name}
    assert sealed == {
        "fedcvt/anchors.shared",
        "fedcvt/anchors.unique",
        "fedcvt/logits.1.0",
        "fedcvt/logits.1.1",
    }
    shop = {name for name in played(2).parts["shop"].tensors if "encoders" not in name}
    assert shop == {"fedcvt/anchors.shared", "fedcvt/anchors.unique"}
