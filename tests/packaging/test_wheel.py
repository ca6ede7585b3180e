"""The sdist and the wheel work without the repository, and have all that they need."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tcsaea_torch as tc

ROOT = Path(__file__).parents[2]
INSTALLED = Path(__file__).with_name("installed.py")
EXTRAS = ("matplotlib", "pandas", "dask", "distributed", "optuna", "ax", "pymoo", "smt", "evox")
"""What extras bring, by the names that are imported."""


def run(*command: object, cwd: Path) -> str:
    """Run a command and return its output, or fail with it."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build "sdist" or "wheel" of a source tree, without a network."""
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(out)!r}))"
    return out / run(sys.executable, "-c", code, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tcsaea_torch", folder / "tcsaea_torch", ignore=ignored)
    return build("sdist", folder, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def about(wheel: Path) -> Message:
    """The wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        found = {n for n in archive.namelist() if ".dist-info/" not in n}
        (top,) = (n for n in archive.namelist() if n.endswith(".dist-info/top_level.txt"))
        assert archive.read(top).decode().split() == ["tcsaea_torch"]
    files = (p for p in (ROOT / "tcsaea_torch").rglob("*") if p.is_file())
    wanted = {p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts}
    assert found == wanted
    assert {"tcsaea_torch/py.typed", "tcsaea_torch/problems/pareto_sets.json"} <= found


def test_the_metadata_is_complete(about):
    assert about["Name"] == "tcsaea-torch"
    assert about["Version"] == tc.__version__
    assert about["License-Expression"] == "MIT"
    assert about["License-File"] == "LICENSE"
    assert about["Description-Content-Type"] == "text/markdown"
    assert str(about.get_payload()).strip() == (ROOT / "README.md").read_text().strip()
    for field in ("Author", "Summary", "Keywords", "Requires-Python"):
        assert about[field], field


def test_messages_name_extras_that_there_are(about):
    named = set()
    for path in (ROOT / "tcsaea_torch").rglob("*.py"):
        named.update(re.findall(r"tcsaea-torch\[(\w+)\]", path.read_text()))
    assert {"plot", "pymoo", "optuna", "ax"} <= named <= set(about.get_all("Provides-Extra", []))


def test_every_package_that_is_imported_is_declared(about):
    declared = {canonicalize_name(Requirement(r).name) for r in about.get_all("Requires-Dist", [])}
    imported = set()
    for path in (ROOT / "tcsaea_torch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    imported -= {"tcsaea_torch", *sys.stdlib_module_names}
    names = {canonicalize_name("ax-platform" if name == "ax" else name) for name in imported}
    assert {"torch", "numpy", "tqdm", "matplotlib", "optuna"} <= names
    assert names - declared == {"ipython"}  # which is there where it is needed: in notebooks


def packages_of(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the distributions that requirements lead to here, by their canonical names."""
    waiting, seen = [Requirement(text) for text in requirements], set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            yield name
            for text in metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)


def test_it_works_without_the_repository_and_the_extras(wheel, about, tmp_path):
    """As in a new environment: only the wheel and what its metadata asks for can be imported."""
    requirements = [r for r in about.get_all("Requires-Dist", []) if "extra ==" not in r]
    allowed = set(packages_of(requirements))
    hidden = [
        name
        for name, packages in metadata.packages_distributions().items()
        if name != "tcsaea_torch" and allowed.isdisjoint(map(canonicalize_name, packages))
    ]
    assert "pytest" in hidden
    target, folder = tmp_path / "target", tmp_path / "empty"
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--no-compile", "--target", target, wheel, cwd=folder)
    hide = sorted({*hidden, *EXTRAS})
    run(sys.executable, "-I", "-B", INSTALLED, "--from", target, "--hide", *hide, cwd=folder)
    assert not list(folder.iterdir())


# ------------------------------------------------------------------ with the index


USER_CODE = """
import tcsaea_torch as tc

problem = tc.Problem(
    fast=lambda x: float(x[0]), slow=lambda x: float(x[1]), bounds=[[0, 0], [1, 1]], tau=2
)
result = tc.minimize(problem, n_slow=6, strategy=tc.TCEHVI(noisy=True))
reveal_type(result)
reveal_type(tc.Optimizer(problem, n_slow=6).ask())
reveal_type(result.pareto_X)
tc.minimize(problem, n_slow="six")
"""


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of a new environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, wheel, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    yield python
    shutil.rmtree(folder)  # it is large


@pytest.mark.slow
def test_it_works_in_a_new_environment(environment, tmp_path):
    run(environment, "-I", "-B", INSTALLED, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
    tcsaea = environment.with_stem("tcsaea")
    assert run(tcsaea, "--version", cwd=tmp_path).strip() == tc.__version__


@pytest.mark.slow
def test_type_checkers_see_its_types(environment, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(USER_CODE)
    command = [sys.executable, "-m", "pyright", "--pythonpath", environment, "--outputjson", script]
    done = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    shown = [d["message"].splitlines()[0] for d in found if d["severity"] == "information"]
    assert shown == [
        'Type of "result" is "Result"',
        'Type of "tc.Optimizer(problem, n_slow=6).ask()" is "list[Evaluation]"',
        'Type of "result.pareto_X" is "Tensor"',
    ]
    (wrong,) = (d for d in found if d["severity"] == "error")
    assert wrong["rule"] == "reportArgumentType"
    assert wrong["range"]["start"]["line"] == USER_CODE.rstrip().count("\n")
