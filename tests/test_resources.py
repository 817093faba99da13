"""What is no Python is found in a checkout, and in what a user installs: a real wheel, built and installed here."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import supervisor
from supervisor import resources

CHECKOUT = Path(__file__).resolve().parents[1]


def files_below(*folders: str) -> set[str]:
    """Every file of the checkout there, by its path in it; what running leaves behind is left out."""
    return {
        str(path.relative_to(CHECKOUT))
        for folder in folders
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not any(part.endswith("_cache") for part in path.parts)
    }


def test_a_checkout_has_them_all() -> None:
    assert resources.layouts() == CHECKOUT / "layouts"
    assert resources.simulated_engine() == CHECKOUT / "supervisor" / "demo" / "simulated_engine.py"


def test_an_installation_that_is_not_whole_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layouts").mkdir()  # somebody else's, without our file
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "supervisor")
    with pytest.raises(FileNotFoundError, match="the installation is not whole"):
        resources.layouts()
    with pytest.raises(FileNotFoundError, match="the installation is not whole"):
        resources.simulated_engine()


def run(*words: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel. The wheel is built from the sdist, as an index's users may have to."""
    out = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(out), cwd=CHECKOUT)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "unpacked", filter="data")
    (source,) = (out / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=source)
    return out


@pytest.mark.xdist_group("wheel")
def test_the_sdist_is_complete(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = files_below("supervisor", "layouts", "tests", "scripts", ".ci")
    missing = (wanted | {"pyproject.toml", "README.md"}) - names
    assert not missing


@pytest.mark.xdist_group("wheel")
def test_the_wheel_has_the_package_and_the_layouts_and_no_more(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files_below("supervisor") | {f"supervisor/{name}" for name in files_below("layouts")}
    for one in ("supervisor/layouts/base.tcss", "supervisor/py.typed", "supervisor/node/keeper.py"):
        assert one in names
    assert any(name.startswith("supervisor/engines/") and name.endswith(".toml") for name in names)


@pytest.mark.xdist_group("wheel")
def test_an_installed_copy_finds_its_own(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    target = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    run(*pip, "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=tmp_path)
    environment = {"PYTHONPATH": str(target)}
    question = "from supervisor import resources as r; print(r.layouts(), r.simulated_engine(), sep='\\n')"
    answer = run(sys.executable, "-c", question, cwd=tmp_path, environment=environment).split()
    home = target / "supervisor"
    assert answer == [str(home / "layouts"), str(home / "demo" / "simulated_engine.py")]
    engines = "from supervisor.engines import loader; print(*loader.names())"
    assert run(sys.executable, "-c", engines, cwd=tmp_path, environment=environment).split()
    version = run(str(target / "bin" / "supervisor"), "--version", cwd=tmp_path, environment=environment)
    assert version.split()[:2] == ["supervisor", supervisor.__version__]
