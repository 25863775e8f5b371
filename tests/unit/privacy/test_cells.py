"""Tables released cell by cell: what the noise really is, that it repeats, and what a release costs."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from itertools import permutations
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.errors import ConfigError, OutOfRange
from colonnade.privacy import CELL_GRID, CellColumn, CellRelease, Mechanism, SecretNoise
from colonnade.privacy.cells import _discrete_laplace, _laplace_tables, largest_whole_laplace, whole_laplace

NOISE = SecretNoise(bytes(range(32)))
NOISY = [mechanism for mechanism in get_args(Mechanism) if mechanism != "none"]
MIXED = (CellColumn("age", 0, 0.5), CellColumn("job", 3, 2.0), CellColumn("income", 0, 1.0))
cells = st.one_of(st.floats(-2.0, 3.0), st.just(math.nan))


def release(columns: Any, mechanism: Mechanism = "cell_ldp", **settings: Any) -> CellRelease:
    return CellRelease(columns, mechanism, noise=NOISE, **settings)


def numeric(epsilon: float, count: int = 1) -> list[CellColumn]:
    return [CellColumn(f"c{place}", 0, epsilon) for place in range(count)]


def released_cells(value: float, epsilon: float, count: int, purpose: str) -> np.ndarray:
    return release(numeric(epsilon)).perturb(np.full((count, 1), value), purpose)[:, 0]


def one_hot(level: int | None, levels: int, count: int) -> np.ndarray:
    rows = np.zeros((count, levels))
    if level is not None:
        rows[:, level] = 1.0
    return rows


def largest_excess(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """Return by how many standard errors the worst log ratio of two histograms is above epsilon."""
    enough = (one >= 100) & (other >= 100)
    assert enough.sum() >= 2
    errors = np.sqrt(1.0 / one[enough] + 1.0 / other[enough])
    return float(((np.log(one[enough] / other[enough]) - epsilon) / errors).max())


# The distribution, from the tables it is drawn from: exact, not sampled.


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 12.0])
def test_the_tables_are_as_near_to_the_discrete_laplace_distribution_as_the_module_says(epsilon: float) -> None:
    places, units = (table.tolist() for table in _laplace_tables(epsilon))
    with localcontext() as context:
        context.prec = 60
        full, each = Decimal(2**64), (-Decimal(epsilon) / CELL_GRID).exp()
        drawn = np.diff(np.array([0, *places, 2**64], object))
        heights = [each ** abs(place) for place in range(-CELL_GRID, CELL_GRID)]
        total = sum(heights)
        distance = sum(abs(part / full - height / total) for part, height in zip(drawn, heights, strict=True)) / 2
        falling = [*reversed(units), 0]
        whole = np.diff(-np.array([2**64, *falling], object))
        ratio = each**CELL_GRID
        exact = [(1 - ratio) * ratio**count for count in range(len(whole))]
        distance += (
            sum(abs(part / full - one) for part, one in zip(whole, exact, strict=True)) + ratio ** len(exact)
        ) / 2
    assert distance < Decimal(2) ** -52 + Decimal(45 / epsilon + 1) * Decimal(2) ** -65


@pytest.mark.parametrize("epsilon", [0.01, 0.125, 0.7, 1.0, 3.0])
def test_noise_of_counts_falls_by_epsilon_from_each_whole_number_to_the_next(epsilon: float) -> None:
    words = NOISE.words("counts", 0, (200_000, 2))
    drawn = whole_laplace(epsilon, words)
    ratio = math.exp(-epsilon)
    assert abs(np.abs(drawn).mean() / (2 * ratio / (1 - ratio**2)) - 1) < 0.03
    assert abs((drawn == 0).mean() - (1 - ratio) / (1 + ratio)) < 0.005
    assert abs(drawn.mean()) < 5 * drawn.std() / math.sqrt(len(drawn))
    for whole in (0, 1, 2, 3):
        near, far = np.sum(np.abs(drawn) == whole) / (1 + (whole > 0)), np.sum(np.abs(drawn) == whole + 1) / 2
        assert abs(math.log(near / far) - epsilon) < 6 * math.sqrt(1 / near + 1 / far)
    assert np.abs(drawn).max() <= largest_whole_laplace(epsilon)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 2.0, 1000.0])
def test_noise_of_counts_never_exceeds_the_stated_magnitude(epsilon: float) -> None:
    words = np.array([[one, other] for one in (0, 2**63, 2**64 - 1) for other in (0, 2**64 - 1)], np.uint64)
    most = np.abs(whole_laplace(epsilon, words)).max()
    assert most <= largest_whole_laplace(epsilon) <= most + max(2, 1 / epsilon)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 1e-5])
def test_counts_refuse_an_epsilon_that_no_noise_is_drawn_for(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        largest_whole_laplace(epsilon)


def test_no_set_of_outcomes_tells_nought_from_one_by_more_than_epsilon_and_the_stated_delta() -> None:
    epsilon = 2.0
    places, units = (table.tolist() for table in _laplace_tables(epsilon))
    of_place = np.diff(np.array([0, *places, 2**64], object))
    of_units = np.diff(-np.array([2**64, *reversed(units), 0], object))
    # How likely each sum is, times 2**128: below 0 the units go on downwards, from 0 on upwards.
    below = np.concatenate([of_place[:CELL_GRID] * count for count in reversed(of_units)])
    above = np.concatenate([of_place[CELL_GRID:] * count for count in of_units])
    mass = np.concatenate([below, above])
    assert mass.sum() == 2**128
    nothing = np.zeros(CELL_GRID, object)
    for nought, one in permutations((np.concatenate([mass, nothing]), np.concatenate([nothing, mass]))):
        scaled = nought * 2**60 - one * math.ceil(math.exp(epsilon) * 2**60)
        delta = sum(excess for excess in scaled if excess > 0) / 2**188
        assert delta < (1.0 + math.exp(epsilon)) * (2.0**-52 + (45 / epsilon + 1) * 2.0**-65)


def test_the_outermost_words_give_the_outermost_noise_and_nothing_else() -> None:
    words = np.array([[0, 0], [0, 2**64 - 1], [2**64 - 1, 2**64 - 1], [2**64 - 1, 0]], np.uint64)
    far, near = _discrete_laplace(1.0, words)[[0, 1]]
    assert near == -CELL_GRID
    # No draw is beyond 46 scales: its whole units, 45, have to be at least 2**-65 likely.
    assert far == -46 * CELL_GRID
    assert _discrete_laplace(1.0, words)[2:].tolist() == [CELL_GRID - 1, -far - 1]


# The same, from samples of what is released.


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_a_released_cell_tells_nought_from_one_by_no_more_than_epsilon(epsilon: float) -> None:
    edges = np.arange(-4.0, 5.01, 0.5)
    nought, one = (
        np.histogram(released_cells(value, epsilon, 100_000, f"value {value}"), edges)[0] for value in (0.0, 1.0)
    )
    assert largest_excess(nought, one, epsilon) < 4.0
    assert largest_excess(one, nought, epsilon) < 4.0
    # And it is told by that much outside: the noise is not larger than it need be.
    assert largest_excess(nought[edges[:-1] < 0.0], one[edges[:-1] < 0.0], 0.8 * epsilon) > 4.0


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_noise_has_the_mean_and_the_size_of_its_epsilon(epsilon: float) -> None:
    noise = released_cells(0.3, epsilon, 200_000, "size") - round(0.3 * CELL_GRID) / CELL_GRID
    assert abs(noise.mean()) < 4 * math.sqrt(2) / epsilon / math.sqrt(len(noise))
    assert np.abs(noise).mean() == pytest.approx(1 / epsilon, rel=0.01)
    assert noise.std() == pytest.approx(math.sqrt(2) / epsilon, rel=0.02)


@pytest.mark.parametrize(("levels", "epsilon"), [(2, 1.0), (4, 0.5), (4, 2.0), (7, 3.0)])
def test_a_released_level_tells_no_two_levels_nor_a_missing_one_apart_by_more_than_epsilon(
    levels: int, epsilon: float
) -> None:
    drawn = release([CellColumn("job", levels, epsilon)])
    answers = {
        level: drawn.perturb(one_hot(level, levels, 40_000), f"level {level}") for level in (*range(levels), None)
    }
    counts = {level: np.bincount(rows.argmax(axis=1), minlength=levels) for level, rows in answers.items()}
    for one, other in permutations(counts, 2):
        assert largest_excess(counts[one], counts[other], epsilon) < 4.0
    keep = math.exp(epsilon) / (math.exp(epsilon) + levels - 1)
    for level in range(levels):
        assert counts[level][level] / 40_000 == pytest.approx(keep, abs=4 * math.sqrt(keep * (1 - keep) / 40_000))
    assert counts[None] / 40_000 == pytest.approx(np.full(levels, 1 / levels), abs=4 * math.sqrt(0.25 / 40_000))


@pytest.mark.parametrize(("levels", "epsilon"), [(2, 1.0), (5, 0.5)])
def test_the_mean_of_released_levels_is_the_one_hot_row(levels: int, epsilon: float) -> None:
    drawn = release([CellColumn("job", levels, epsilon)])
    for level in range(levels):
        rows = drawn.perturb(one_hot(level, levels, 50_000), f"mean {level}")
        assert rows.mean(axis=0) == pytest.approx(one_hot(level, levels, 1)[0], abs=4 * rows.std() / math.sqrt(50_000))
    # Whatever the level was, the same two numbers are written.
    assert len(np.unique(rows)) == 2


def test_bits_and_numbers_of_a_row_are_drawn_independently() -> None:
    columns = [CellColumn("a", 0, 1.0), CellColumn("b", 2, 1.0), CellColumn("c", 2, 1.0), CellColumn("d", 0, 1.0)]
    rows = release(columns).perturb(np.tile([0.5, 1.0, 0.0, 1.0, 0.0, 0.5], (20_000, 1)), "independent")
    together = np.corrcoef(rows[:, [0, 1, 3, 5]].T) - np.eye(4)
    assert np.abs(together).max() < 4 / math.sqrt(20_000)
    # Nor are rows of the same table, one batch of draws after another.
    assert abs(np.corrcoef(rows[:1024, 0], rows[1024:2048, 0])[0, 1]) < 4 / math.sqrt(1024)


@pytest.mark.parametrize("mechanism", NOISY)
def test_no_draw_is_used_twice_in_a_table(mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    real = SecretNoise._words

    def noted(noise: SecretNoise, kind: str, purpose: str, counter: int, shape: tuple[int, ...]) -> np.ndarray:
        asked.append((purpose, counter))
        return real(noise, kind, purpose, counter, shape)

    monkeypatch.setattr(SecretNoise, "_words", noted)
    release(MIXED, mechanism).perturb(np.tile([0.5, 0.0, 1.0, 0.0, 0.5], (2500, 1)), "table")
    # Three batches of rows, and of answers where there are any; the shared draw is the one that is meant to repeat.
    assert len(set(asked)) == {"cell_ldp": 6, "lemma_shared": 1}.get(mechanism, 3)
    assert len(set(asked)) == len(asked) or mechanism == "lemma_shared"


# Grid, missing cells and repetition.


@settings(deadline=None)
@given(values=arrays(np.float64, (4, 3), elements=cells), mechanism=st.sampled_from(NOISY))
def test_every_release_of_numbers_is_on_the_grid_and_its_noise_does_not_depend_on_them(
    values: np.ndarray, mechanism: Mechanism
) -> None:
    drawn = release(numeric(0.7, 3), mechanism)
    released = drawn.perturb(values, "grid")
    assert np.array_equal(released * CELL_GRID, np.rint(released * CELL_GRID))
    known = np.clip(np.where(np.isnan(values), 0.5, values), 0.0, 1.0)
    assert np.array_equal(released - drawn.perturb(np.zeros((4, 3)), "grid"), np.rint(known * CELL_GRID) / CELL_GRID)


@settings(deadline=None)
@given(levels=arrays(np.int64, 6, elements=st.integers(0, 3)), counter=st.integers(0, 9))
def test_every_release_of_levels_is_one_level(levels: np.ndarray, counter: int) -> None:
    # 3 stands for a missing level here, a row of zeros.
    rows = np.concatenate([np.full((6, 1), 0.5), np.eye(4)[levels][:, :3], np.full((6, 1), 0.5)], axis=1)
    released = release(MIXED).perturb(rows, "levels", counter)[:, 1:4]
    loss = math.exp(-2.0)
    high, low = (1 + loss) / (1 - loss), -loss / (1 - loss)
    assert np.sort(released, axis=1) == pytest.approx(np.tile([low, low, high], (6, 1)), rel=1e-12)


def test_missing_cells_are_let_through_without_noise_and_hidden_with_it() -> None:
    rows = np.array([[math.nan, 0.0, 0.0, 0.0, 0.25], [0.5, math.nan, math.nan, math.nan, 7.0]])
    assert np.array_equal(release(MIXED, "none").perturb(rows, "missing"), rows, equal_nan=True)
    for mechanism in NOISY:
        assert np.isfinite(release(MIXED, mechanism).perturb(rows, "missing")).all()


def test_what_is_returned_is_a_copy() -> None:
    rows = np.array([[0.25]])
    for mechanism in get_args(Mechanism):
        release(numeric(1.0), mechanism).perturb(rows, "copy")[:] = 9.0
    assert rows.tolist() == [[0.25]]


@pytest.mark.parametrize("mechanism", NOISY)
def test_noise_repeats_for_the_same_key_purpose_and_counter_and_for_nothing_else(mechanism: Mechanism) -> None:
    rows = np.tile([0.5, 0.0, 1.0, 0.0, 0.5], (1500, 1))
    first = release(MIXED, mechanism).perturb(rows, "table", 3)
    again = CellRelease(MIXED, mechanism, noise=SecretNoise(bytes(range(32)))).perturb(rows, "table", 3)
    assert first.tobytes() == again.tobytes()
    assert np.array_equal(release(MIXED, mechanism).perturb(rows[:1100], "table", 3), first[:1100])
    others = [
        release(MIXED, mechanism).perturb(rows, "table", 4),
        release(MIXED, mechanism).perturb(rows, "tables", 3),
        CellRelease(MIXED, mechanism, noise=SecretNoise(bytes(32))).perturb(rows, "table", 3),
    ]
    assert all((other[:, 0] != first[:, 0]).mean() > 0.99 for other in others)


@pytest.mark.parametrize(
    "other",
    [
        release(numeric(0.25, 2)),
        release([CellColumn("c0", 0, 0.5), CellColumn("other", 0, 0.5)]),
        release(numeric(0.5, 2), "lemma"),
        release(numeric(0.5, 2), hidden=2),
    ],
)
def test_other_settings_draw_other_noise_so_that_their_difference_gives_nothing_away(other: CellRelease) -> None:
    rows = np.full((5000, 2), 0.5)
    one, another = release(numeric(0.5, 2)).perturb(rows, "twice"), other.perturb(rows, "twice")
    assert abs(np.corrcoef(one[:, 0], another[:, 0])[0, 1]) < 4 / math.sqrt(5000)


def test_no_rows_give_no_rows() -> None:
    for mechanism in get_args(Mechanism):
        assert release(MIXED, mechanism).perturb(np.zeros((0, 5)), "none").shape == (0, 5)


# The other mechanisms.


@pytest.mark.parametrize(("hidden", "expected"), [(1, 4.0), (30, 120.0)])
def test_the_lemma_has_noise_of_twice_the_hidden_width_over_epsilon(hidden: int, expected: float) -> None:
    rows = np.full((4000, 10), 0.5)
    noise = release(numeric(0.5, 10), "lemma", hidden=hidden).perturb(rows, "lemma") - rows
    assert np.abs(noise).mean() == pytest.approx(expected, rel=0.02)
    assert np.abs(np.corrcoef(noise.T) - np.eye(10)).max() < 4.5 / math.sqrt(4000)


def test_a_shared_draw_leaves_differences_between_rows_exact() -> None:
    rows = np.random.default_rng(0).integers(0, CELL_GRID + 1, (3000, 4)) / CELL_GRID
    released = release(numeric(0.5, 4), "lemma_shared").perturb(rows, "shared")
    offsets = released - rows
    assert np.array_equal(offsets, np.tile(offsets[0], (3000, 1)))
    assert len(set(offsets[0])) == 4
    many = release(numeric(0.5, 2000), "lemma_shared").perturb(np.zeros((1, 2000)), "shared")
    assert np.abs(many).mean() == pytest.approx(4.0, rel=0.1)


def test_gaussian_noise_has_its_size_in_every_coordinate_of_unit_space() -> None:
    rows = np.tile([0.5, 0.0, 1.0, 0.0, 0.5], (20_000, 1))
    noise = release(MIXED, "row_gaussian", sigma=3.0).perturb(rows, "normal") - rows
    assert noise.std(axis=0) == pytest.approx(np.full(5, 3.0), rel=0.03)
    assert np.abs(noise.mean(axis=0)).max() < 4 * 3.0 / math.sqrt(20_000)
    # Normal, and not of another shape of that size.
    assert (np.abs(noise) > 6.0).mean() == pytest.approx(0.0455, rel=0.1)


# Budgets.


def test_the_costs_of_the_implementers_sheet() -> None:
    few = release(numeric(0.5, 15)).budget(100)
    assert few.row_basic == 7.5
    assert set(few.cells.values()) == {0.5}
    assert few.row_zcdp[0] == pytest.approx(15 * 0.125)
    # zCDP would say 11.2, which is worse than the sum.
    assert few.row_zcdp[1] == 7.5
    many = release(numeric(0.5, 280)).budget(100)
    assert many.row_basic == 140.0
    assert many.row_zcdp[1] == pytest.approx(35 + 2 * math.sqrt(35 * math.log(1e5)))


def test_a_category_counts_once_however_many_levels_it_has() -> None:
    budget = release(MIXED).budget(10)
    assert budget.cells == {"age": 0.5, "job": 2.0, "income": 1.0}
    assert budget.row_basic == 3.5
    assert budget.row_zcdp[0] == pytest.approx((0.25 + 4.0 + 1.0) / 2)
    assert (budget.is_sound, budget.rows, budget.mechanism, budget.paper_claim) == (True, 10, "cell_ldp", 2.0)


def test_rows_are_released_in_parallel_and_cost_no_more_for_being_many() -> None:
    one, many = (release(MIXED).budget(rows) for rows in (1, 10_000))
    assert (one.cells, one.row_basic, one.row_zcdp) == (many.cells, many.row_basic, many.row_zcdp)


def test_a_row_under_gaussian_noise_costs_its_largest_squared_distance() -> None:
    budget = release(MIXED, "row_gaussian", sigma=2.0, delta=1e-6).budget(5)
    weight = math.log(1e6)
    # Two numbers at most 1 apart, two levels at most a squared distance of 2.
    assert budget.row_zcdp == pytest.approx((0.5, 0.5 + 2 * math.sqrt(0.5 * weight)))
    assert budget.cells["age"] == pytest.approx(0.125 + 2 * math.sqrt(0.125 * weight))
    assert budget.cells["job"] == pytest.approx(0.25 + 2 * math.sqrt(0.25 * weight))
    assert budget.row_basic == math.inf
    assert budget.is_sound
    assert budget.paper_claim is None


def test_the_lemmas_cost_what_their_draws_give_and_are_never_called_sound() -> None:
    independent = release(MIXED, "lemma", hidden=2).budget(5)
    # Lap(2 h / epsilon) on a number is epsilon / 2h; a level changes two bits.
    assert independent.cells == pytest.approx({"age": 0.125, "job": 1.0, "income": 0.25})
    assert independent.row_basic == pytest.approx(1.375)
    shared, nothing = release(MIXED, "lemma_shared").budget(5), release(MIXED, "none").budget(5)
    for budget in (shared, nothing):
        assert set(budget.cells.values()) == {math.inf}
        assert (budget.row_basic, budget.row_zcdp) == (math.inf, (math.inf, math.inf))
    assert not any(budget.is_sound for budget in (independent, shared, nothing))
    assert (independent.paper_claim, shared.paper_claim, nothing.paper_claim) == (2.0, 2.0, None)


@settings(deadline=None)
@given(
    epsilons=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=40),
    delta=st.floats(1e-12, 0.1),
    mechanism=st.sampled_from(NOISY),
)
def test_no_row_costs_more_than_the_sum_of_its_cells_nor_less_than_its_dearest(
    epsilons: list[float], delta: float, mechanism: Mechanism
) -> None:
    columns = [CellColumn(f"c{place}", 0, epsilon) for place, epsilon in enumerate(epsilons)]
    budget = release(columns, mechanism, delta=delta).budget(1)
    assert budget.row_zcdp[1] <= budget.row_basic
    assert budget.row_basic >= max(budget.cells.values())


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("none", "Nothing bounds what the receiver learns"),
        ("cell_ldp", "One cell costs epsilon 0.5 to 2; a whole row costs 3.5 by the sum"),
        ("cell_ldp", "whose proof does not hold: the two cannot be compared"),
        ("row_gaussian", "a whole row 11.6 at delta 1e-05 (rho 2)"),
        ("lemma", "claims epsilon 2 for all of this. Its proof does not hold"),
        ("lemma", "what independent draws of that size give"),
        ("lemma_shared", "differences between rows are exact, and centring removes it"),
        ("lemma_shared", "Nothing bounds"),
    ],
)
def test_a_budget_says_in_words_what_it_means_and_what_is_wrong_with_it(mechanism: Mechanism, said: str) -> None:
    text = release(MIXED, mechanism).budget(7).text()
    assert text.startswith("7 rows of 3 columns were released")
    assert said in text


@pytest.mark.parametrize("mechanism", get_args(Mechanism))
def test_a_budget_is_plain_json(mechanism: Mechanism) -> None:
    budget = release(MIXED, mechanism).budget(7)
    saved = json.loads(json.dumps(budget.to_json(), allow_nan=False))
    assert saved["cells"].keys() == {"age", "job", "income"}
    assert saved["rows"] == 7
    assert (saved["row_basic"] is None) == (budget.row_basic == math.inf)
    assert saved["row_zcdp"]["delta"] == 1e-5


# What is refused.


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: CellColumn("age", 1), "'age' needs 0 levels"),
        (lambda: CellColumn("age", -2), "'age' needs 0 levels"),
        *((lambda value=value: CellColumn("age", 0, value), "epsilon of column 'age'") for value in (0, -1, math.inf)),
        (lambda: CellColumn("age", 0, math.nan), "epsilon of column 'age'"),
        (lambda: release(numeric(1.0), "cell_lpd"), "Did you mean 'cell_ldp'"),
        (lambda: release([]), "at least one column"),
        (lambda: release([CellColumn("age"), CellColumn("age")]), "same name"),
        (lambda: release(numeric(1.0), "row_gaussian", sigma=0.0), "standard deviation"),
        (lambda: release(numeric(1.0), "lemma", hidden=0), "hidden width"),
        (lambda: release(numeric(1.0), "lemma", hidden=10_000), "the least this draws for is 0.0001"),
        (lambda: release(numeric(1.0), delta=0.0), "delta"),
        (lambda: release(numeric(1.0)).budget(-1), "fewer than none"),
    ],
)
def test_settings_that_are_none_are_refused(build: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build()


@pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 6), (1, 2, 5)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    for mechanism in get_args(Mechanism):
        with pytest.raises(ConfigError, match="take rows of 5 values"):
            release(MIXED, mechanism).perturb(np.zeros(shape), "width")


@pytest.mark.parametrize("mechanism", NOISY)
def test_values_that_no_noise_could_hide_are_refused_without_being_named(mechanism: Mechanism) -> None:
    drawn = release(MIXED, mechanism)
    with pytest.raises(OutOfRange, match="not finite"):
        drawn.perturb(np.array([[math.inf, 0.0, 1.0, 0.0, 0.5]]), "refused")
    for block in ([0.5, 0.5, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, math.nan, 1.0], [-1.0, 1.0, 1.0]):
        with pytest.raises(OutOfRange, match="'job' has rows that are neither one level") as refused:
            drawn.perturb(np.array([[0.123, *block, 0.5]]), "refused")
        assert "0.123" not in str(refused.value)
