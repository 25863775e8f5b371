"""The page that `benchmarks.papers.fairvfl` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.form import Findings
from benchmarks.papers.fedcvt_page import paragraph, table
from benchmarks.papers.prada_page import pyplot, save

PAGE = Path(__file__).parents[2] / "docs" / "results-fairvfl.md"
LOCALS = {"mlp": "MLP", "tabnet": "TabNet", "autoint": "AutoInt"}
ROWS = ("central", "VFL", "FairGo", "FairSM", "FairRec", "FairVFL paper", "FairVFL robust")
# Accuracy, precision, recall, F1 of the task, and F1 of attacks on gender and age, as the paper prints them.
PAPER = {
    "base": (
        ".8215 .7664 .8344 .7842 .7827 .4747",
        ".8223 .7672 .8347 .7850 .7907 .4912",
        ".8231 .7687 .8319 .7849 .7922 .4899",
    ),
    "FairGo": (
        ".7797 .7926 .7797 .7849 .5092 .1592",
        ".7440 .7682 .7440 .7533 .5028 .1563",
        ".7689 .7793 .7689 .7731 .5059 .1573",
    ),
    "FairSM": (
        ".7757 .7962 .7757 .7831 .5066 .1555",
        ".7404 .7683 .7404 .7507 .5061 .1598",
        ".7630 .7789 .7630 .7688 .5053 .1550",
    ),
    "FairRec": (
        ".7759 .7882 .7759 .7808 .5094 .1575",
        ".7489 .7679 .7489 .7565 .5035 .1561",
        ".7660 .7810 .7660 .7717 .5043 .1583",
    ),
    "VFL": (
        ".8147 .7644 .8316 .7782 .7905 .4748",
        ".8177 .7648 .8331 .7809 .7875 .4836",
        ".8165 .7641 .8342 .7802 .7907 .4798",
    ),
    "FairVFL": (
        ".7674 .8069 .7674 .7787 .5031 .1550",
        ".7551 .7686 .7551 .7606 .5072 .1548",
        ".7619 .7794 .7619 .7686 .5053 .1522",
    ),
}


class Page:
    """All sections, from what was found."""

    def __init__(self, found: Mapping[str, Any], findings: Findings, sizes: Any, values: Callable[..., Any]) -> None:
        self.found, self.findings, self.sizes, self.values = found, findings, sizes, values

    def shown(self, row: str, data: str, local: str, *path: str) -> str:
        values = self.values(self.found, row, data, local, *path)
        if not len(values) or np.isnan(values).all():
            return ""
        return f"{values.mean():.3f} ± {values.std():.3f}" if len(values) > 1 else f"{values[0]:.3f}"

    def task(self, local: str) -> str:
        columns = {
            "accuracy": "accuracy",
            "AUC": "auc",
            "macro F1": "macro_f1",
            "weighted F1": "weighted_f1",
            "balanced accuracy": "balanced_accuracy",
            "accuracy at base rate": "accuracy at base rate",
            "macro F1 at base rate": "macro_f1 at base rate",
        }
        return self._rows(local, {name: ("task", key) for name, key in columns.items()})

    def attacks(self, local: str) -> str:
        columns: dict[str, tuple[str, ...]] = {}
        for name, key in (("F1", "macro_f1"), ("F1, tuned", "tuned_macro_f1"), ("AUC", "auc")):
            columns[f"gender, strong: {name}"] = ("attack", "gender", "strong", key)
        columns["gender, whitened: AUC"] = ("attack", "gender", "whitened", "auc")
        columns["gender, weak: F1"] = ("attack", "gender", "weak", "macro_f1")
        columns["gender, linear: AUC"] = ("attack", "gender", "linear", "auc")
        columns["gender, trees: AUC"] = ("attack", "gender", "boosting", "auc")
        columns["age, strong: F1"] = ("attack", "age", "strong", "macro_f1")
        return self._rows(local, columns)

    def gaps(self, local: str) -> str:
        columns = {
            "parity, gender": ("task", "parity gender"),
            "odds, gender": ("task", "odds gender"),
            "opportunity, gender": ("task", "opportunity gender"),
            "parity, gender, at base rate": ("task", "parity gender at base rate"),
            "parity, age": ("task", "parity age"),
            "odds, age": ("task", "odds age"),
        }
        return self._rows(local, columns)

    def _rows(self, local: str, columns: Mapping[str, tuple[str, ...]]) -> str:
        rows = []
        for row in (*ROWS, "robust, task at server"):
            cells = [self.shown(row, "adult", local, *path) for path in columns.values()]
            if any(cells):
                rows.append([f"**{row}**" if row == "FairVFL robust" else row, self.seeds(row, "adult", local), *cells])
        return table(["", "seeds", *columns], rows)

    def seeds(self, row: str, data: str, local: str) -> str:
        """Say of how many seeds a row is."""
        return str(len(self.values(self.found, row, data, local, "seconds")))

    def paper(self, place: int) -> str:
        rows = [[name, *numbers[place].split()] for name, numbers in PAPER.items()]
        return table(["paper", "accuracy", "precision", "recall", "F1", "gender F1", "age F1"], rows)

    def sweep(self, names: Sequence[str], head: str) -> str:
        rows = []
        for name in names:
            cells = [
                self.shown(f"robust, {name}", "adult", "mlp", *path)
                for path in (
                    ("task", "accuracy"),
                    ("task", "auc"),
                    ("task", "parity gender"),
                    ("task", "odds gender"),
                    ("attack", "gender", "strong", "tuned_macro_f1"),
                    ("attack", "gender", "strong", "auc"),
                    ("attack", "age", "strong", "macro_f1"),
                )
            ]
            if any(cells):
                rows.append([name, *cells])
        columns = ["accuracy", "AUC", "parity gap", "odds gap", "gender, tuned F1", "gender, AUC", "age F1"]
        return table([head, *columns], rows)

    def grid(self) -> list[tuple[str, dict[str, float]]]:
        """Return all weights and strengths of noise, with what they reached."""
        paths = {
            "accuracy": ("task", "accuracy"),
            "AUC": ("task", "auc"),
            "parity gap": ("task", "parity gender"),
            "odds gap": ("task", "odds gender"),
            "gender, tuned F1": ("attack", "gender", "strong", "tuned_macro_f1"),
            "gender, AUC": ("attack", "gender", "strong", "auc"),
            "age F1": ("attack", "age", "strong", "macro_f1"),
        }
        return [
            (
                row.removeprefix("robust, "),
                {
                    name: float(self.values(self.found, row, "adult", "mlp", *path).mean())
                    for name, path in paths.items()
                },
            )
            for row in self._named("lambda")
        ]

    def front(self) -> str:
        """Show the grid, and which of its settings no other beats in both."""
        every = self.grid()
        rows = []
        for name, one in every:
            beaten = any(
                other["AUC"] >= one["AUC"] and other["gender, AUC"] <= one["gender, AUC"] and other is not one
                for _, other in every
            )
            rows.append([name if beaten else f"**{name}**", *(f"{value:.3f}" for value in one.values())])
        return table(["λ of gender, σ", *(every[0][1] if every else ())], rows)

    def columns(self) -> str:
        """Say what protected codes give away, beside the code."""
        rows = []
        for row in ("FairVFL paper", "FairVFL robust"):
            names = [name for name in self.found if name.startswith(f"{row}|adult|mlp|")]
            read = [self.found[name]["columns"] for name in names]
            for source in ("code", "gender", "age"):
                values = [one[source]["macro_f1"] for own in read for one in own.values() if source in one]
                chance = [one[source]["chance"][1] for own in read for one in own.values() if source in one]
                if values:
                    label = "the code" if source == "code" else f"the protected code for {source}"
                    rows.append([f"{row}: {label}", f"{np.mean(values):.3f}", f"{np.mean(chance):.3f}"])
        return table(["attacked", "macro F1, mean over fields", "best chance"], rows)

    def without_noise(self) -> str:
        """Show what the code gives away to whoever sees it without noise."""
        rows = []
        for local in self.sizes.locals:
            cells = [
                self.shown("FairVFL robust", "adult", local, *path)
                for path in (
                    ("attack", "gender", "strong", "tuned_macro_f1"),
                    ("attack", "gender", "strong", "auc"),
                    ("without noise", "gender", "strong", "tuned_macro_f1"),
                    ("without noise", "gender", "strong", "auc"),
                )
            ]
            if any(cells):
                rows.append([LOCALS[local], self.seeds("FairVFL robust", "adult", local), *cells])
        return table(
            ["", "seeds", "as it leaves: F1, tuned", "AUC", "without noise: F1, tuned", "AUC without noise"], rows
        )

    def movies(self) -> str:
        rows = []
        for local in self.sizes.movies:
            for row in ("VFL", "FairVFL paper", "FairVFL robust"):
                cells = [
                    self.shown(row, "movies", local, *path)
                    for path in (
                        ("task", "auc"),
                        ("task", "mrr"),
                        ("task", "ndcg_5"),
                        ("task", "ndcg_10"),
                        ("attack", "gender", "strong", "tuned_macro_f1"),
                        ("attack", "gender", "strong", "auc"),
                        ("attack", "age", "strong", "macro_f1"),
                    )
                ]
                if any(cells):
                    rows.append([f"{local}, {row}", self.seeds(row, "movies", local), *cells])
        head = ["", "seeds", "AUC", "MRR", "nDCG@5", "nDCG@10", "gender, tuned F1", "gender, AUC", "age F1"]
        return table(head, rows)

    def bars(self) -> str:
        rows = []
        for name, bar in self.findings.document()["bars"].items():
            wanted = f"at least {bar['at_least']:g}" if "at_least" in bar else f"at most {bar['at_most']:g}"
            rows.append([name.replace("_", " "), f"{bar['value']:.3f}", wanted, "yes" if bar["holds"] else "**no**"])
        return table(["", "found", "bar", "holds"], rows)

    def text(self) -> str:
        """Return the whole page."""
        seeds = ", ".join(map(str, self.sizes.seeds))
        parts = [
            "# FairVFL: what was measured",
            paragraph(
                f"""This page is the output of `python -m benchmarks.papers.fairvfl`. Models called VFL and FairVFL are
                the product's own code, with seven parties as threads; the others are plain PyTorch in one place. Adult:
                30,000 people drawn by the seed, 16,000 to learn from, 4,000 to validate and 10,000 to test on, twelve
                fields dealt at random to three platforms. Mean and standard deviation over seeds among {seeds}, as many
                as a row says; settings were chosen with seed 0, which is not among them. Attackers are ensembles of
                five, trained on codes of training rows as the label holder sees them; "tuned" F1 has its threshold from
                validation rows. Rivals were tuned less than ours, with one to five weights each.
                Chance is an AUC of .5, and a macro F1 of .40 to .50 for gender and of .13 to .25 for
                age."""
            ),
            paragraph(
                """**In short.** The paper's way of removal lowers the gap between groups and costs the task much,
                but leaves gender in the code for a strong attacker as if nothing had been removed. Robust removal
                takes most of it out and halves the gap, at a smaller cost. It does not make errors equal: the gap
                of equalised odds grows. The noise carries a good part of the effect, and whoever sees the code
                without it, as the aggregator does, reads more. Age, with its small weight, is reduced and not
                hidden. Bars are about MLP, with which all settings were chosen; with TabNet more of gender is left.
                Weights of rivals were chosen with MLP too: FairSM loses the task with the other two, FairGo at
                times. On MovieLens removal costs ranking more than on Adult it costs decisions, and little of
                gender was there to be removed."""
            ),
            "## Bars",
            self.bars(),
        ]
        for place, (local, title) in enumerate(LOCALS.items()):
            if local not in self.sizes.locals:
                continue
            parts += [f"## Adult, {title}", "The task:", self.task(local), "What attackers read:", self.attacks(local)]
            parts += ["Differences between groups:", self.gaps(local), "The paper's numbers:", self.paper(place)]
        parts += [
            paragraph(
                """**How to read the paper's numbers.** In its rows of fair models recall equals accuracy, so these are
                averages weighted by class; in its base and VFL rows it does not, so these are plain averages. A model
                with an accuracy of .82 on these data has a plain F1 of .78 and a weighted one of .83. That F1 does not
                fall is so an effect of two averages; accuracy falls by about five points, to what a constant answer
                has. Its attackers' F1 lies within the band of chance, but argmax F1 does so as soon as an attacker
                names the larger group for all: a threshold or the AUC tells more."""
            ),
            "## What is left out, and how much of each",
            self.sweep(
                (
                    "no gender",
                    "no age",
                    "contrastive",
                    "no randomised answers",
                ),
                "ablation",
            ),
            "The weight of the contrastive step:",
            self.sweep([name.removeprefix("robust, ") for name in self._named("gamma")], "γ"),
            "## What removal and noise cost",
            paragraph(
                f"""The weight of removal (the age's is a twentieth of it) against the noise on the code, one model each
                (seed {self.sizes.sweep_seeds[0]}). No other setting is both as good at the task and as hard to read as
                those in bold; with one model each, differences of a hundredth mean little."""
            ),
            self.front(),
            "![The task's AUC against the attacker's, for every weight and noise](figures/fairvfl-trade-off.svg)",
            "## What noise hides",
            paragraph(
                """Strong attackers, ensembles of two, on the code without its noise, as only the aggregator sees it."""
            ),
            self.without_noise(),
            "## What protected codes give away",
            paragraph(
                """Strong attackers on each of the twelve fields, the mean of two, over all seeds. The paper's protected
                codes are meant to be private because of the contrastive step; narrow ones with noise are because they
                can hold little."""
            ),
            self.columns(),
            "## MovieLens 100K",
            paragraph(
                """In place of the paper's news logs, which are not public: histories of liked films, of disliked films
                and of genres at three platforms, one film to be found among nineteen others that the person never
                rated, drawn by how many people liked them. All models learn with the same rate and batches; the code of
                robust removal has 16 numbers here, and the weights of gender and age are 1 and .1. The paper's own
                numbers on its news logs: AUC .639 plain and .604 fair for NAML, gender F1 .697 and .534."""
            ),
            self.movies(),
        ]
        return "\n\n".join(parts) + "\n"

    def _named(self, what: str) -> list[str]:
        return list(dict.fromkeys(name.split("|")[0] for name in self.found if name.startswith(f"robust, {what} ")))


def write_page(found: Mapping[str, Any], findings: Findings, sizes: Any, values: Callable[..., Any]) -> None:
    page = Page(found, findings, sizes, values)
    draw_trade_off(page.grid(), PAGE.parent / "figures" / "fairvfl-trade-off.svg")
    PAGE.write_text(page.text())


def draw_trade_off(grid: Sequence[tuple[str, Mapping[str, float]]], path: Path) -> None:
    """Draw what is left of the task against what is read of gender, one line for each strength of noise."""
    plot = pyplot()
    figure, axis = plot.subplots(figsize=(6.4, 4.2))
    by_noise: dict[str, list[tuple[str, Mapping[str, float]]]] = {}
    for name, one in grid:
        weight, _, noise = name.partition(", ")
        by_noise.setdefault(noise.removeprefix("noise "), []).append((weight.removeprefix("lambda "), one))
    for noise, points in by_noise.items():
        across, up = [one["gender, AUC"] for _, one in points], [one["AUC"] for _, one in points]
        axis.plot(across, up, marker="o", markersize=4, linewidth=1, label=f"σ = {noise}")
        for (weight, _), x, y in zip(points, across, up, strict=True):
            axis.annotate(weight, (x, y), textcoords="offset points", xytext=(4, 3), fontsize=7)
    axis.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axis.set_xlabel("what a strong attacker reads of gender: AUC (0.5: chance)")
    axis.set_ylabel("the task: AUC")
    axis.legend(title="noise; numbers: λ", fontsize=8)
    figure.tight_layout()
    save(figure, path)
    plot.close(figure)
