"""Notebooks run, and what is stored of them is what their sources say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
NAMES = [
    "1_quickstart", "2_crash_beam", "3_machine_learning", "4_botorch_loop",
    "5_how_transfer_works", "6_paper",
]  # fmt: skip
TEXTS = ("text/plain", "text/html", "text/markdown")
MACHINE_PATH = re.compile(r"(?<![\w.<])/(?:home|root|tmp|usr|opt|var|work|Users|private)/|[A-Z]:\\")


def named(sources):
    return pytest.mark.parametrize("source", sources, ids=lambda path: path.stem)


def cells_of(text):
    """Return (kind, text) of the cells of a source in percent format."""
    header, *cells = re.split(r"^# %%(?=$| \[markdown\]$)", text, flags=re.MULTILINE)
    assert re.fullmatch(r"(# ---\n(#.*\n)+# ---\n)?\s*", header), header
    found = []
    for cell in cells:
        first, _, rest = cell.partition("\n")
        if first:
            rest = "\n".join(re.sub("^# ?", "", line) for line in rest.splitlines())
        found.append(("markdown" if first else "code", rest.strip()))
    return found


def load(source):
    return json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))


def texts_of(output):
    """Return what an output shows as text, pictures left out."""
    if output["output_type"] == "stream":
        return ["".join(output["text"])]
    data = output.get("data", {})
    return ["".join(data[kind]) for kind in TEXTS if kind in data]


def test_all_notebooks_are_there():
    assert NAMES == sorted(path.stem for path in SOURCES)
    assert {path.stem for path in SOURCES} == {p.stem for p in FOLDER.glob("*.ipynb")}


@named(SOURCES)
def test_a_source_runs_without_warnings_and_leaves_nothing_behind(source, tmp_path):
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    environment = {
        **os.environ, "SMOKE_TEST": "1", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "MPLCONFIGDIR": str(tmp_path / "mpl"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    # torch itself warns so when it is imported with botorch.
    strict = ["-W", "error", "-W", "ignore:`torch.jit.script` is deprecated:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *strict, source], cwd=work, env=environment,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not [*work.iterdir(), *temporary.iterdir()]


@named(SOURCES)
def test_a_stored_notebook_has_the_cells_of_its_source(source):
    stored = [(c["cell_type"], "".join(c["source"]).strip()) for c in load(source)["cells"]]
    assert stored == cells_of(source.read_text(encoding="utf-8"))


@named(SOURCES)
def test_a_stored_notebook_was_run_from_top_to_bottom_without_faults(source):
    code = [cell for cell in load(source)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@named(SOURCES)
def test_a_stored_notebook_says_nothing_of_the_machine(source):
    notebook = load(source)
    assert "version" not in notebook["metadata"].get("language_info", {})
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            for text in texts_of(output):
                assert not MACHINE_PATH.search(text), text
