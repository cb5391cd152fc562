"""Every Python block of the pages runs. Training is cut short: what it learns is for the tests of learning."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import s2pg
from s2pg import demos
from s2pg.kernels import KERNELS

ROOT = Path(__file__).parent.parent
SHOWN = (".md", ".png", ".gif", ".html")  # what `make docs` copies
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if "```python" in path.read_text())
MOST_STEPS = 512


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def files_of_demos(folder):
    """What the examples of docs/demos.md read."""
    episodes = 4 * [3]
    rows = sum(episodes)
    last = np.zeros(rows, bool)
    last[np.cumsum(episodes) - 1] = True
    states = np.arange(rows * 3, dtype=float).reshape(rows, 3)
    table = {"states": states, "next_states": states + 1.0, "actions": np.zeros((rows, 1)), "last": last}
    np.savez(folder / "walk.npz", **table, absorbing=np.zeros(rows, bool))
    angles = {f"{kind}_{joint}": np.linspace(0.0, 1.0, 8) for kind in ("q", "dq") for joint in ("hip", "knee")}
    np.savez(folder / "clip.npz", **angles, split_points=np.array([0, 2, 4, 6, 8]))
    seen = {"observation": np.zeros((2, 3)), "desired_goal": np.ones((2, 2))}
    ends, first = np.array([False, True]), np.array([True, False])
    demos.write(folder / "reach.minari", demos.Demonstrations(seen, seen, np.zeros((2, 1)), ends, first))


def linked(page):
    """The files that a page links to, without code and without what lies elsewhere."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)", text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="the source distribution has no benchmarks")
def test_links_lead_to_files_that_the_site_has():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    links = {(page, link): page.parent / link for page in pages for link in linked(page)}
    assert len(links) > 50
    assert [key for key, path in links.items() if not (path.is_file() and path.suffix in SHOWN)] == []


@pytest.fixture
def short(monkeypatch):
    """Lets training end soon."""
    train = s2pg.train

    def soon(*args, **given):
        given |= {"steps": MOST_STEPS, "borders": 1, "episodes": 2, "say": lambda line: None}
        return train(*args, **given, hyper={"lanes": 4, "steps": 16})

    monkeypatch.setattr(s2pg, "train", soon)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch, short):
    monkeypatch.chdir(tmp_path)
    if page.name == "demos.md":
        pytest.importorskip("h5py")
        files_of_demos(tmp_path)
        s2pg.train("ppo", "recall", memory="s2pg", out="runs/recall-ppo-s2pg")
    known, registered = set(KERNELS), set(gymnasium.registry)
    try:
        names = {}
        for block in blocks(page):
            exec(compile(block, page.name, "exec"), names)
    finally:
        for name in set(KERNELS) - known:
            del KERNELS[name]
        for name in set(gymnasium.registry) - registered:
            del gymnasium.registry[name]


def test_there_are_pages_to_run():
    assert {"README.md", "tutorial.md", "kernels.md", "demos.md"} <= {page.name for page in PAGES}
