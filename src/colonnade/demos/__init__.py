"""What `colonnade demo` shows: for every method tables at hand, and what its model is held against."""

from colonnade.demos.demo import Demo, Figures, Measured, tables_of
from colonnade.demos.folder import first_line, rows_to_score, write_demo
from colonnade.demos.shown import DEMOS
from colonnade.demos.verdict import judge_controls, verdict

__all__ = [
    "DEMOS",
    "Demo",
    "Figures",
    "Measured",
    "first_line",
    "judge_controls",
    "rows_to_score",
    "tables_of",
    "verdict",
    "write_demo",
]
