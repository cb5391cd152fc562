"""The stress test with small counts; `python tests/stress --help` says how to run it with large ones."""

import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parent / "stress"
LONG = (["--mutations", "300"], ["--kills", "24", "--fills", "24"], ["--injections", "120"])


@pytest.mark.parametrize(
    "what", [["--mutations", "10"], *(pytest.param(each, marks=pytest.mark.slow) for each in LONG)]
)
def test_nothing_is_lost_unnamed_or_wrong(what):
    done = subprocess.run([sys.executable, str(STRESS), *what], check=False, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
