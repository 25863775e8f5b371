"""How far source and target rows lie apart in each group, before and after adaptation. Stays at the feature holder."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.methods.prada.school import School
from colonnade.session import Figure, Finding

__all__ = ["Shift", "proxy_distance", "shift_finding"]

Numbers = npt.NDArray[np.float64]

# Rows of each domain that the distance is measured on, and that a picture shows.
_MEASURED, _DRAWN = 2000, 200
# Iterations of a picture: more move its points but little.
_ITERATIONS = 500


def proxy_distance(source: Numbers, target: Numbers, seed: int) -> float:
    """Return the proxy A-distance: 2 (1 - 2 error) of a linear classifier of domains, on rows it was not fitted to.

    0 says that it does no better than chance, 2 that it is never wrong.
    """
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(seed)
    count = min(len(source), len(target))
    if count < 4:
        return 0.0
    rows = [values[draw.permutation(len(values))[:count]] for values in (source, target)]
    inputs, labels = np.concatenate(rows), np.repeat([0, 1], count)
    order = draw.permutation(len(inputs))
    fitted, held = order[::2], order[1::2]
    if len(np.unique(labels[fitted])) < 2:
        return 0.0
    model = LogisticRegression(max_iter=1000).fit(inputs[fitted], labels[fitted])
    error = float(np.mean(model.predict(inputs[held]) != labels[held]))
    return max(0.0, 2.0 * (1.0 - 2.0 * error))


@dataclass(frozen=True)
class Shift:
    """Every group's representations of some rows of both domains, and how far these lie apart."""

    names: tuple[str, ...]
    source: list[Numbers]
    target: list[Numbers]
    distances: tuple[float, ...]
    seed: int

    @classmethod
    def measure(cls, school: School) -> Shift:
        """Measure the networks as they are now, on training rows of all sources and targets."""
        session = school.session
        draw = np.random.default_rng(session.own_seed("shift"))
        sources = [school.source_rows(party) for party in session.plan.roles["source"]]
        chosen = [
            draw.permutation(rows)[:_MEASURED] for rows in (np.unique(np.concatenate(sources)), school.target_rows)
        ]
        source, target = (school.extractors.features(rows) for rows in chosen)
        seed = session.own_seed("proxy distance")
        distances = tuple(proxy_distance(one, other, seed) for one, other in zip(source, target, strict=True))
        return cls(school.names, source, target, distances, seed)

    def picture(self, place: int, when: str) -> Figure:
        """Draw one group's representations in two dimensions."""
        from sklearn.manifold import TSNE

        source, target = self.source[place][:_DRAWN], self.target[place][:_DRAWN]
        rows = np.concatenate([source, target])
        with warnings.catch_warnings():
            # Threads and constant columns are not the user's business here.
            warnings.simplefilter("ignore")
            perplexity = min(30.0, max(2.0, (len(rows) - 1) / 4))
            points = TSNE(
                perplexity=perplexity, init="random", random_state=self.seed % 2**32, max_iter=_ITERATIONS
            ).fit_transform(rows)
        series = [
            {"name": name, "x": np.round(part[:, 0], 2).tolist(), "y": np.round(part[:, 1], 2).tolist()}
            for name, part in (("source", points[: len(source)]), ("target", points[len(source) :]))
        ]
        title = f"{self.names[place]}, {when}: proxy A-distance {self.distances[place]:.2f}"
        return Figure(kind="scatter", title=title, values={"series": series})


def shift_finding(before: Shift, after: Shift, draws: bool) -> Finding:
    """Say how far domains lay apart before training and lie apart after it."""
    rows = tuple(
        (name, f"{first:.2f}", f"{last:.2f}")
        for name, first, last in zip(after.names, before.distances, after.distances, strict=True)
    )
    single = [place for place, name in enumerate(after.names) if "-" not in name]
    figures = tuple(
        one.picture(place, when)
        for place in (single if draws else [])
        for one, when in ((before, "before training"), (after, "after training"))
    )
    return Finding(
        name="domains",
        title="How far source and target rows lie apart",
        text="The proxy A-distance of each group's representations: 0 where a linear classifier cannot tell rows of "
        "source and target apart, 2 where it is never wrong. Before training the networks are random. All this was "
        "measured and drawn at the feature holder and left it in no message.",
        columns=("group", "before training", "after training"),
        rows=rows,
        values={
            "groups": list(after.names),
            "before": [float(one) for one in before.distances],
            "after": [float(one) for one in after.distances],
        },
        figures=figures,
    )
