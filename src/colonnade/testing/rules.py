"""What every rule of a party's policy must do in every method: refuse where it must, and not a row or run sooner.

A rule that is added to `Policy` needs a check here, or one of colonnade's own tests fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from colonnade import alignment
from colonnade.data import PartyTable
from colonnade.errors import PolicyRefused
from colonnade.launch.home import read_party_home
from colonnade.launch.identity import make_home
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import RunFolder
from colonnade.messages import Declaration, Protection, declaration_of
from colonnade.session import Policy, RunPlan
from colonnade.testing.cases import Case, new_tables, once, predict, toy_tables, train
from colonnade.testing.expect import raising, require

__all__ = ["RULES", "check_rules_that_are_just_met_refuse_nothing"]

Scored = dict[str, dict[str, int]]
"""How many rows a party helps to score, by the party that gets the scores."""


def _check_methods(case: Case) -> None:
    for party in _parties(case):
        _refused(case, party, Policy(methods=("another",)))
        _refused_in_prediction(case, party, Policy(methods=()))


def _check_partners(case: Case) -> None:
    run = once(case)
    for party in _parties(case):
        for peer in (peer for peer in _parties(case) if peer != party):
            if run.method.are_connected(run.plan, party, peer):
                others = tuple(one for one in _parties(case) if one != peer)
                _refused(case, party, Policy(partners=others))
        _refused_in_prediction(case, party, Policy(partners=()))


def _check_never_send(case: Case) -> None:
    """By its protection and by its name, what a party declares to send is refused before a run and a prediction."""
    for stage, refuse in (("train", _refused), ("predict", _refused_in_prediction)):
        plan = _plan(case, stage)
        for party in plan.parties:
            sent = _sent(case, plan, party)
            for protection in {one.protection for one in sent}:
                refuse(case, party, Policy(never_send=(protection.value,)))
            if sent:
                refuse(case, party, Policy(never_send=(sent[-1].name,)))


def _check_minimum_shared_rows(case: Case) -> None:
    """Who brings no rows is not told how many are shared, so it cannot keep this rule and refuses every training."""
    for party, least in _shared(case).items():
        _refused(case, party, Policy(minimum_shared_rows=least + 1))
    for party in _without_rows(case):
        _refused(case, party, Policy(minimum_shared_rows=1))


def _check_maximum_runs(case: Case) -> None:
    for party in _parties(case):
        _refused(case, party, Policy(maximum_runs=0))


def _check_maximum_alignments(case: Case) -> None:
    for party in _shared(case):
        _refused(case, party, Policy(maximum_alignments=0))
        if case.method.predicting.rows != "own" and party in _plan(case, "predict").parties:
            _refused_in_prediction(case, party, Policy(maximum_alignments=0))


def _check_predictions_per_day(case: Case) -> None:
    """Who helps to score another's rows counts them; one row fewer than that is refused, and none is counted twice."""
    scored = _scored(case)
    require(scored, "Somebody should help to score the rows of somebody else.")
    for party, counts in scored.items():
        _refused_in_prediction(case, party, Policy(predictions_per_day=max(counts.values()) - 1))
    for party in set(_without_rows(case)) & set(_plan(case, "predict").parties):
        _refused_in_prediction(case, party, Policy(predictions_per_day=10**6))
    predict(case, {party: Policy(predictions_per_day=max(counts.values())) for party, counts in scored.items()})


def _check_consent(case: Case) -> None:
    """What a party in its own building would send needs the word of its operator, or a policy that gives it."""
    plan = once(case).plan
    for party in plan.parties:
        with (
            TemporaryDirectory() as folder,
            patch("colonnade.launch.join.load_partners", lambda home, names: {}),
            patch.object(Joining, "table", property(_reach)),
        ):
            make_home(Path(folder), party, "127.0.0.1:1", has_table=False)
            for policy, error in (
                (Policy(), raising(PolicyRefused, _rule(party, "consent"))),
                (Policy(consent="policy"), raising(_ReachedError)),
            ):
                home = replace(read_party_home(Path(folder), party), policy=policy)
                joining = Joining(plan, home, RunFolder(Path(folder) / "run"))
                with error:
                    joining.run()
            with raising(PolicyRefused, _rule(party, "consent")):
                Joining(plan, read_party_home(Path(folder), party), RunFolder(Path(folder) / "run")).predict(None)


class _ReachedError(Exception):
    """A party went on beyond what its rules say about consent."""


def _reach(joining: Joining) -> None:
    raise _ReachedError


RULES: Mapping[str, Callable[[Case], None]] = {
    "methods": _check_methods,
    "partners": _check_partners,
    "never_send": _check_never_send,
    "minimum_shared_rows": _check_minimum_shared_rows,
    "maximum_runs": _check_maximum_runs,
    "maximum_alignments": _check_maximum_alignments,
    "predictions_per_day": _check_predictions_per_day,
    "consent": _check_consent,
}


def check_rules_that_are_just_met_refuse_nothing(case: Case) -> None:
    """A policy with every rule that allows just this run does not stop it."""
    shared = _shared(case)
    plan, policies = _plan(case, "train"), {}
    for party in plan.parties:
        sent = {one.protection for one in _sent(case, plan, party)}
        policies[party] = Policy(
            methods=(case.method.name,),
            partners=tuple(one for one in plan.parties if one != party),
            never_send=tuple(one.value for one in Protection if one not in sent),
            minimum_shared_rows=shared.get(party, 0),
            maximum_runs=1,
            maximum_alignments=1,
            # Held-out rows of a training are no predictions.
            predictions_per_day=0,
        )
    train(case, policies=policies)


def _refused(case: Case, party: str, policy: Policy) -> None:
    with raising(PolicyRefused, _rule_of(policy, party)):
        train(case, policies={party: policy})


def _refused_in_prediction(case: Case, party: str, policy: Policy) -> None:
    if party in _plan(case, "predict").parties:
        with raising(PolicyRefused, _rule_of(policy, party)):
            predict(case, {party: policy})


def _rule_of(policy: Policy, party: str) -> str:
    (rule,) = (rule for rule in RULES if getattr(policy, rule) != getattr(Policy(), rule))
    return _rule(party, rule)


def _rule(party: str, rule: str) -> str:
    return rf"'{party}' refuses this run by its rule policy\.{rule} "


def _plan(case: Case, stage: str) -> RunPlan:
    return case.method.in_stage(once(case).plan, stage)


def _parties(case: Case) -> list[str]:
    return [party for parties in case.parties.values() for party in parties]


def _without_rows(case: Case) -> list[str]:
    without = {role.name for role in case.method.roles if not role.has_rows}
    return [party for role, parties in case.parties.items() if role in without for party in parties]


def _sent(case: Case, plan: RunPlan, party: str) -> list[Declaration]:
    """Return what a party may send: by its role, and to find shared rows."""
    own = list(case.method.declarations_in(plan))
    own = [one for one in own if one.sender == plan.role_of(party) and plan.roles.get(one.receiver)]
    aligns = party in case.method.parties_with_rows(plan)
    return [*(map(declaration_of, alignment.messages_of(case.method, plan)) if aligns else ()), *own]


def _shared(case: Case) -> dict[str, int]:
    """Return the fewest rows that each party with rows shares in an alignment it has a part in."""
    return _shared_in(case, toy_tables(case), _plan(case, "train"))


def _shared_in(case: Case, tables: Mapping[str, PartyTable], plan: RunPlan) -> dict[str, int]:
    ids = {party: set(table.ids) for party, table in tables.items()}
    lead = case.method.leader_of(plan)
    pairs = {party: len(ids[lead] & ids[party]) for party in ids if party != lead}
    if case.method.stage(plan.stage).rows == "pairwise":
        return {**pairs, lead: min(pairs.values())}
    return dict.fromkeys(ids, len(set.intersection(*ids.values())))


def _scored(case: Case) -> Scored:
    """Return how many rows each party helps to score, for whom."""
    plan, tables = _plan(case, "predict"), new_tables(case)
    if case.method.predicting.rows_of is not None:
        asking = {party: tables[party].rows for party in plan.roles[case.method.predicting.rows_of]}
        helping = [party for party in plan.parties if party not in asking]
        return dict.fromkeys(helping, asking)
    shared = _shared_in(case, tables, plan)
    with_label = {role.name for role in case.method.roles if role.has_label}
    getting = [party for party in tables if plan.role_of(party) in with_label]
    scored: Scored = {
        party: {one: shared[one if case.method.predicting.rows == "pairwise" else party] for one in getting}
        for party in tables
        if party not in getting
    }
    if case.method.predicting.rows == "shared and rest":
        known = predict(case)["known to"]
        (lead,) = getting
        scored[lead] = {}
        for party in tables:
            rest = int(known.str.match(rf"{party}( only|,)").sum())
            for asked in scored if case.asks_all else [lead]:
                if asked != party:
                    scored[asked][party] = scored[asked].get(party, 0) + rest
        require(max(scored[lead].values()) > 0, "Rows that the lead lacks should be scored too.")
    return scored
