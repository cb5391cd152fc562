"""Robots on the device beside C MuJoCo: one control step from the same states, within the bounds of the tests.

    python benchmarks/robots/parity.py --backends warp mjx --lanes 256 [--out FILE]

Prints a line for each robot and backend and ends with 1 where one is out of bounds. The tests of `make test` do the
same for MJX; this is for what needs a GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from s2pg.envs.mujoco.parity import BOUNDS, differences
from s2pg.io.provenance import hardware, versions
from s2pg.io.sinks import write_json


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=list(BOUNDS))
    parser.add_argument("--backends", nargs="*", default=["warp"])
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows, bad = [], 0
    for task in args.tasks:
        for backend in args.backends:
            found = differences(task, backend, args.lanes)
            broken = found.broken(BOUNDS[task])
            bad += bool(broken)
            print(f"{task} {backend}: {found.report()}{'; OUT OF BOUNDS: ' if broken else ''}{', '.join(broken)}")
            sys.stdout.flush()
            most = {name: float(part.max()) for name, part in found.groups.items()}
            rows.append({"task": task, "backend": backend, "most": most, "exact": found.exact(), "broken": broken})
    if args.out:
        write_json(args.out, {"lanes": args.lanes, "rows": rows, "versions": versions(), "hardware": hardware()})
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
