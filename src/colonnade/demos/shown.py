"""The demo of every method."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.datasets import (
    BREAST_CANCER_BOUNDS,
    TOWN_GROUPS,
    breast_cancer,
    breast_cancer_hospitals,
    digits_few_shared,
    town_attributes,
    town_labels_elsewhere,
    town_later,
    town_sister_banks,
)
from colonnade.demos.controls import (
    already_trained,
    by_who_knows,
    north_alone,
    nothing_removed,
    of_headline,
    other_run,
    plain_model,
    with_reading,
)
from colonnade.demos.demo import Demo

__all__ = ["DEMOS"]

_MADE_UP = "The people are made up, by a seed (colonnade.datasets.town_people)."
_FEW_TO_LEARN_FROM = {"test_fraction": 0.8, "validation_fraction": 0.1}
"""Few shared rows to learn from are the point; that the others are held out lets the comparison mean something."""
_PATIENTS = "The patients are those of scikit-learn's breast cancer data."
_IN_THE_CLEAR = (
    'This demo sets protection = "none", so that it takes seconds: what the default encrypts crosses in the clear.'
)

DEMOS: Mapping[str, Demo] = {
    one.method: one
    for one in (
        Demo(
            method="splitnn",
            name="breast-cancer",
            about="A hospital with diagnoses and a laboratory with measurements train one model; neither sees the "
            "other's table.",
            data=_PATIENTS,
            tables=breast_cancer,
            roles={"label_holder": "hospital", "feature_holder": "laboratory"},
            id="patient",
            labels={"hospital": "diagnosis"},
            files={"hospital": "patients.csv", "laboratory": "measurements.csv"},
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.1},
            compares=True,
            measure=of_headline,
            controls={
                "the hospital alone": already_trained("alone"),
                "all columns in one place": already_trained("central"),
            },
            ceilings=("all columns in one place",),
        ),
        Demo(
            method="secure_lr",
            name="breast-cancer-encrypted",
            about="A hospital with diagnoses and a laboratory with measurements train one regression; what crosses is "
            "encrypted or masked.",
            data=_PATIENTS,
            tables=breast_cancer,
            roles={"label_holder": "hospital", "feature_holder": "laboratory"},
            id="patient",
            labels={"hospital": "diagnosis"},
            files={"hospital": "patients.csv", "laboratory": "measurements.csv"},
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.1},
            compares=True,
            measure=of_headline,
            controls={
                "the hospital alone": already_trained("alone"),
                "all columns in one place": already_trained("central"),
            },
            ceilings=("all columns in one place",),
        ),
        Demo(
            method="fedcvt",
            name="few-shared",
            about="Two archives keep the left and the right halves of handwritten numerals. Few of them have both "
            "halves in common; both learn from those that only one of them has, too.",
            data="The numerals are scikit-learn's digits.",
            tables=digits_few_shared,
            roles={"label_holder": "left", "feature_holder": "right"},
            id="id",
            labels={"left": "digit"},
            files={"left": "halves.csv", "right": "halves.csv"},
            evaluate=_FEW_TO_LEARN_FROM,
            measure=of_headline,
            controls={
                "the left archive alone, with all its rows": plain_model("left"),
                "splitnn on the shared rows": other_run("splitnn"),
            },
        ),
        Demo(
            method="mpdl",
            name="two-hospitals",
            about="Two hospitals measure different things of few of the same patients, and each learns to generate "
            "what the other would have measured; an institute without a table helps.",
            data=_PATIENTS,
            tables=breast_cancer_hospitals,
            roles={"label_holder": "north", "feature_holder": "south", "collaborator": "institute"},
            id="patient",
            labels={"north": "diagnosis"},
            files={"north": "patients.csv", "south": "patients.csv"},
            settings={"bounds": {name: list(pair) for name, pair in BREAST_CANCER_BOUNDS.items()}},
            because="How large each measurement can be: from what is known about it, never from the tables.",
            evaluate={"test_fraction": 0.7, "validation_fraction": 0.0},
            measure=by_who_knows,
            controls={
                "means filled in for what is not known": other_run(
                    "mpdl", changes={"generator": "mean"}, measure=by_who_knows
                ),
                "north alone, with all its rows": north_alone,
            },
        ),
        Demo(
            method="ftl",
            name="labels-elsewhere",
            about="A bank knows who paid back, a shop has no label at all, and few people are customers of both: the "
            "bank's labels score the shop's customers.",
            data=_MADE_UP,
            tables=town_labels_elsewhere,
            roles={"source": "bank", "target": "shop"},
            id="customer",
            labels={"bank": "paid_back"},
            settings={"protection": "none"},
            because="So that this takes seconds; the default encrypts.",
            note=_IN_THE_CLEAR,
            evaluate=_FEW_TO_LEARN_FROM,
            measure=of_headline,
            controls={"the shop's columns and the labels of the shared rows": plain_model("shop")},
        ),
        Demo(
            method="prada",
            name="sister-bank",
            about="A new bank knows of few customers who paid back; its sister bank knows it of many, who are other "
            "people; a data company has rich columns of all.",
            data=_MADE_UP,
            tables=town_sister_banks,
            roles={"target": "bank", "source": "sister", "feature_holder": "data"},
            id="customer",
            labels={"bank": "paid_back", "sister": "paid_back"},
            files={"data": "people.csv"},
            settings={"protection": "none", "groups": TOWN_GROUPS},
            because="So that this takes seconds; the default encrypts. Groups are the company's columns by subject.",
            note=_IN_THE_CLEAR,
            evaluate={"test_fraction": 0.1, "validation_fraction": 0.1},
            later=town_later,
            measure=of_headline,
            controls={
                "the bank alone": plain_model("bank"),
                "without the sister: the columns of bank and company, the bank's labels": plain_model("bank", "data"),
            },
        ),
        Demo(
            method="fairvfl",
            name="fair-loans",
            about="An employer, a shop and a bank predict who pays back, from a code that shall not tell gender, which "
            "only a registry knows; a server without a table makes the code.",
            data=_MADE_UP,
            tables=town_attributes,
            roles={
                "label_holder": "bank",
                "feature_holder": ["employer", "shop"],
                "aggregator": "server",
                "attribute_holder": "registry",
            },
            id="customer",
            labels={"bank": "paid_back"},
            files=dict.fromkeys(("employer", "shop", "registry"), "people.csv"),
            settings={"attributes": ["gender"]},
            because="The sensitive column, wherever it is.",
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.15},
            stages=("train", "audit"),
            measure=with_reading,
            controls={"the same with nothing removed": nothing_removed},
            lower_is_better=("gender as read",),
            costs=("AUC",),
        ),
    )
}
