"""The wheel and the source distribution: what is in them, and that they work where there is no repository."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import s2pg

ROOT = Path(__file__).parents[1]


def run(*command, **given):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind, source, out):
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out), cwd=source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The source distribution, and the wheel that is built of it."""
    made = tmp_path_factory.mktemp("made")
    sdist = build("sdist", ROOT, made / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(made / "source", filter="data")
    (source,) = (made / "source").iterdir()
    return sdist, build("wheel", source, made / "wheel")


def tracked(*folders):
    if not (ROOT / ".git").exists():
        pytest.skip("git alone knows which files there should be, and this is no repository")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders, cwd=ROOT)
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


def test_without_a_repository_nobody_asks_git(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    with pytest.raises(pytest.skip.Exception):
        tracked("src")


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(packages):
    found = {name for name in zipfile.ZipFile(packages[1]).namelist() if ".dist-info/" not in name}
    assert found == {name.removeprefix("src/") for name in tracked("src/s2pg")}
    assert "s2pg/py.typed" in found


def test_tests_examples_and_pages_come_with_the_source(packages):
    with tarfile.open(packages[0]) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked("src", "tests", "examples", "docs") <= found
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"} <= found


def test_the_page_of_the_package_has_no_link_that_needs_the_repository(packages):
    wheel = zipfile.ZipFile(packages[1])
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    about = Parser().parsestr(wheel.read(name).decode())
    assert about["Version"] == s2pg.__version__ and about.get_all("Project-URL")
    extras = about.get_all("Provides-Extra")
    assert extras is not None and {"warp", "ray", "export", "wandb", "demos", "popgym", "docs"} <= set(extras)
    page = about.get_payload()
    assert isinstance(page, str) and len(page) > 5000
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert targets and all(target.startswith(("https://", "#")) for target in targets)


def test_the_wheel_works_away_from_the_repository(packages, tmp_path):
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
        "--no-compile", "--target", str(tmp_path / "site"), str(packages[1]),
    )  # fmt: skip
    installed = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); "
    command = [sys.executable, "-I", "-c"]
    # Models and demonstrations are files beside the code.
    task = "import s2pg; s2pg.make('humanoid-ages', backend='gymnasium'); print(s2pg.__file__)"
    assert run(*command, installed + task, cwd=tmp_path).strip().startswith(str(tmp_path / "site"))
    main = "from s2pg.cli import main; sys.exit(main(['--version']))"
    assert run(*command, installed + main, cwd=tmp_path) == f"s2pg {s2pg.__version__}\n"
