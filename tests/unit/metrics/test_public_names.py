"""What the package exports."""

from __future__ import annotations

import subprocess
import sys

import colonnade.metrics


def test_every_exported_name_exists():
    assert all(hasattr(colonnade.metrics, name) for name in colonnade.metrics.__all__)
    assert len(set(colonnade.metrics.__all__)) == len(colonnade.metrics.__all__)


def test_importing_metrics_does_not_import_sklearn():
    check = "import sys, colonnade.metrics; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
