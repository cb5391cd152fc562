"""Disturbs tiny runs in every way that is thinkable, thousands of times, and counts what comes of it.

python tests/stress --mutations 10000 --kills 100 --fills 40 --injections 1000
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

# Before JAX is imported: programs this small are compiled in a third of the time, and run as fast.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
sys.path.insert(0, str(Path(__file__).parent.parent))

import kills
from runs import ended, forked, write_demos

BAD = (
    "unnamed errors", "silent wrong numbers", "code executed", "lost", "could not go on", "runs that differ",
    "not finite, unnamed",
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mutations", "kills", "fills", "injections"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="s2pg-stress-") as name:
        folder = Path(name)
        demos, log = folder / "expert.npz", folder / "log"
        assert ended(forked(lambda: write_demos(demos), log)) == 0, log.read_text()
        found = {}

        def part(title, count, work):
            if count:
                (folder / title).mkdir()
                began = time.monotonic()
                found[title] = work(count, folder / title, asked.seed)
                print(f"{title}: {count:,} in {time.monotonic() - began:.0f} s", flush=True)

        if asked.kills or asked.fills:
            (folder / "whole").mkdir()
            sources = {"demos": demos}
            whole = kills.undisturbed(folder / "whole", sources)
            part("kills", asked.kills, lambda n, out, seed: kills.kill_runs(n, out, whole, sources, seed))
            part("full disks", asked.fills, lambda n, out, seed: kills.fill_disks(n, out, whole, sources, seed))
        # From here on JAX computes in this process, and nothing can be forked any more.
        import faults
        import mutations

        part("mutations", asked.mutations, mutations.mutate_runs)
        part("injections", asked.injections, lambda n, out, seed: faults.inject(n, out, {"demos": demos}, seed))
    return tell(found)


def tell(found):
    """Prints the table, and returns 1 where something must not have been."""
    print("\n| what | outcome | times |\n|---|---|---:|")
    for title, counts in found.items():
        for outcome, times in sorted(counts.items()):
            if outcome not in BAD:
                print(f"| {title} | {outcome} | {times:,} |")
    bad = {name: sum(counts[name] for counts in found.values()) for name in BAD}
    for name, times in bad.items():
        print(f"| all | {name} | {times:,} |")
    return int(any(bad.values()))


if __name__ == "__main__":
    sys.exit(main())
