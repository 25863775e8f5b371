"""The suite that every method passes, for methods by others too.

One `Case` says what is played; `check_method` runs every check on it, over memory and over gRPC, and raises
AssertionError at the first that fails. With pytest, `CHECKS` are as many tests:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method(check):
        CHECKS[check](CASE)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from colonnade.testing import checks, declared
from colonnade.testing.cases import TRANSPORTS, Case, toy_tables, train
from colonnade.testing.rules import RULES, check_rules_that_are_just_met_refuse_nothing

__all__ = ["CHECKS", "OF_POLICIES", "TRANSPORTS", "Case", "Check", "check_method", "toy_tables", "train"]

Check = Callable[[Case], None]

_DECLARED = (
    declared.check_what_can_be_read_is_warned_of,
    declared.check_what_is_revealed_stands_alone,
    declared.check_every_field_has_a_rule,
)
_CROSSING = (
    checks.check_every_declared_message_is_sent,
    checks.check_nothing_undeclared_is_sent,
    checks.check_same_result_over_every_transport,
    checks.check_ledgers_agree_and_verify,
    checks.check_raw_columns_never_cross,
    checks.check_peer_loss_ends_cleanly,
    checks.check_predicts_new_rows,
    checks.check_resume_equals_undisturbed,
)
# Over one transport, as results are the same over all.
_RESULTS = (checks.check_config_round_trips, checks.check_learns_on_toy_data, checks.check_seed_repeats_the_run)
_HOSTILE = (checks.check_lies_would_be_refused, checks.check_lies_end_a_run)


def _name(check: Callable[..., None]) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")


OF_POLICIES: Mapping[str, Check] = {
    **{f"a policy's {rule} is kept": check for rule, check in RULES.items()},
    _name(check_rules_that_are_just_met_refuse_nothing): check_rules_that_are_just_met_refuse_nothing,
}
"""The checks of every rule that a party may have in its policy."""

CHECKS: Mapping[str, Check] = {
    **{_name(check): check for check in _DECLARED},
    **{f"{_name(check)} ({over})": partial(check, transport=over) for over in TRANSPORTS for check in _CROSSING},
    **{_name(check): partial(check, transport="memory") for check in _RESULTS},
    **{_name(check): check for check in _HOSTILE},
    **OF_POLICIES,
}
"""Every check, by what it finds to be so."""


def check_method(case: Case) -> None:
    """Run every check on a case; raise AssertionError that says which failed, and why."""
    for name, check in CHECKS.items():
        try:
            check(case)
        except AssertionError as error:
            raise AssertionError(f"{case}: {name}: {error}") from error
