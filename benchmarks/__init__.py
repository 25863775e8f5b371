"""Speed against peers, and the papers' tables. Run one with `python -m benchmarks.NAME [--json]`."""
