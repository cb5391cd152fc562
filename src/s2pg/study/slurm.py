"""Writes an array script for SLURM, one task a cell. Nothing is submitted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from s2pg.study.local import LOGS
from s2pg.study.plan import Cell, Study

STOP_S = 120  # before the time is over: to come to the next checkpoint


def script(study: Study, cells: Sequence[Cell], folder: Path, jobs: int | None) -> str:
    """The script for `sbatch`; cells go by name, so that the study file may grow meanwhile."""
    folder, file = folder.resolve(), study.file.resolve()
    at_once = f"%{jobs}" if jobs else ""
    command = [sys.executable, "-m", "s2pg", "study", str(file), "--out", str(folder)]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=s2pg-{study.file.stem}",
        f"#SBATCH --array=0-{len(cells) - 1}{at_once}",
        f"#SBATCH --cpus-per-task={study.resources.cpus or 1}",
        *(["#SBATCH --gpus=1"] if study.resources.gpu else []),
        f"#SBATCH --output={folder / LOGS}/slurm-%A-%a.log",
        f"#SBATCH --signal=B:INT@{STOP_S}  # stop at a checkpoint when the time is over; submit again to go on",
        "#SBATCH --requeue",
        f"cells=({' '.join(shlex.quote(cell.name) for cell in cells)})",
        f'exec {shlex.join(command)} --cell "${{cells[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    return "\n".join(lines)
