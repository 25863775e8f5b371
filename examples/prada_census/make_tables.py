"""Write the tables of the three homes: a bank with few labels, a sister bank with many, and a company with columns.

The people are those of the Census-Income (KDD) data where `colonnade.datasets.census_income` finds it, and made up
otherwise. The bank's clients have a postgraduate degree, the sister's have none. Run it with
`python examples/prada_census/make_tables.py`; give a folder to write elsewhere than beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from colonnade.datasets import census_income
from colonnade.errors import TableError

SOURCE, LABELLED, UNLABELLED, NEW = 1200, 400, 300, 100
COLUMNS = (
    *("id", "worker_class", "industry", "occupation", "full_or_part_time", "education", "age_range", "gender"),
    *("marital_status", "tax_filing", "household_role", "parents_present"),
)
LABEL = "income_over_50k"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    random = np.random.default_rng(11)
    try:
        sister, bank, people = real(random)
        origin = "real people"
    except TableError:
        sister, bank, people = made_up(random)
        origin = "made-up people; the real ones are not on this machine"
    # The last of the bank's clients come in later, and nobody knows how much they earn.
    new, bank = bank[-NEW:], bank[:-NEW].copy()
    known = np.sort(random.permutation(len(bank))[:LABELLED])
    bank.loc[~bank["id"].isin(bank["id"].to_numpy()[known]), LABEL] = None
    joined = people["id"].isin(new["id"])
    for file, frame in (
        ("sister/clients.csv", sister),
        ("bank/clients.csv", bank),
        ("bank/new.csv", new.drop(columns=LABEL)),
        ("data/people.csv", people[~joined]),
        ("data/new.csv", people[joined]),
    ):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(path, index=False)
        print(f"{path}: {len(frame)} {origin}")


def real(random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return some of the source bank's clients, some of the target bank's, and what the company knows of them."""
    found = census_income(source_rows=SOURCE, labelled=SOURCE, positives=SOURCE // 3)
    words = {0.0: "no", 1.0: "yes"}
    source = found.source[found.source["id"].isin(found.source_train)]
    # Judged as it is trained, or few rows would say little: a third of them earn more.
    target = found.target[found.target["id"].isin(found.target_labelled)]
    target = target.iloc[random.permutation(len(target))[: LABELLED + UNLABELLED + NEW]]
    banks = [one.assign(**{LABEL: one[LABEL].map(words)}) for one in (source, target)]
    ids = pd.concat(banks)["id"]
    people = found.company[found.company["id"].isin(ids)]
    return banks[0], banks[1], people[list(COLUMNS)]


def made_up(random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return two banks' clients, and what a company knows of them, of people that never lived."""
    target = LABELLED + UNLABELLED + NEW
    count = SOURCE + target
    is_target = np.arange(count) >= SOURCE
    worth = random.normal(0.5 * is_target, 1.0)
    age = np.clip(random.normal(40 + 5 * worth, 10), 18, 85).round()

    def level(words: tuple[str, ...], share: float) -> np.ndarray:
        noisy = share * worth + random.normal(0, 1 - share, count)
        return np.array(words, dtype=object)[np.digitize(noisy, np.linspace(-0.8, 0.8, len(words) - 1))]

    schools = np.array(["High school graduate", "Some college but no degree", "Bachelors degree"])
    degrees = np.array(["Masters degree", "Professional degree", "Doctorate"])
    cut = np.digitize(worth + random.normal(0, 0.5, count), (-0.3, 0.8))
    people = pd.DataFrame(
        {
            "id": np.arange(1, count + 1),
            "worker_class": level(("Not in universe", "Private", "Self-employed", "Federal government"), 0.4),
            "industry": level(("Retail trade", "Construction", "Education", "Hospital services", "Finance"), 0.5),
            "occupation": level(("Sales", "Clerical", "Technicians", "Professional specialty", "Executive"), 0.6),
            "full_or_part_time": level(("Not in labor force", "Part-time", "Full-time schedules"), 0.5),
            "education": np.where(is_target, degrees[cut], schools[cut]),
            "age_range": np.where(age < 30, "under 30", np.where(age < 50, "30 to 49", "50 or over")),
            "gender": random.choice(["Female", "Male"], count),
            "marital_status": level(("Never married", "Divorced", "Married"), 0.3),
            "tax_filing": level(("Nonfiler", "Single", "Joint both under 65"), 0.5),
            "household_role": level(("Child", "Spouse of householder", "Householder"), 0.4),
            "parents_present": level(("Both parents present", "Not in universe"), 0.2),
        }
    )
    bank = pd.DataFrame(
        {
            "id": people["id"],
            "age": age.astype(int),
            "gender": people["gender"],
            "capital_gain": np.where(random.random(count) < 0.1, random.lognormal(7 + worth, 1.0), 0).round(),
            "capital_loss": np.where(random.random(count) < 0.05, random.lognormal(6, 0.5, count), 0).round(),
            "dividends": np.where(random.random(count) < 0.2, random.lognormal(5 + worth, 1.0), 0).round(),
            LABEL: np.where(worth + random.normal(0, 0.5, count) > 0.9, "yes", "no").astype(object),
        }
    )
    return bank[:SOURCE], bank[SOURCE:], people


if __name__ == "__main__":
    main()
