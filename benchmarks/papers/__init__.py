"""The papers' experiments, rerun on real data; one file per paper."""
