"""The site: what it must have, that its links lead somewhere, and that its code runs."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tcsaea_torch as tc
from tcsaea_torch.strategies import base

ROOT = Path(__file__).parents[2]
SITE = ROOT / "notebooks"
GUIDE = SITE / "guide"
PAGES = sorted([SITE / "index.md", *GUIDE.rglob("*.md")])
OTHERS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "GLOSSARY.md",
    ROOT / "benchmarks/README.md",
]
FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(
    r"<!-- file of the example: (\S+) -->\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROLE = re.compile(r"\{(doc|py:class)\}`(?:[^`<]*<)?~?([^`>]+)>?`")
GENERATED = re.compile(r"^```\{generated\} (.+)$", re.MULTILINE)


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(GUIDE))
    return importlib.import_module("_tables")


# ------------------------------------------------------------------ what there must be


def test_every_strategy_has_a_page_and_every_page_a_strategy():
    pages = {page.stem for page in (GUIDE / "strategies").glob("*.md")} - {"index"}
    assert pages == set(tc.strategies.names())


@pytest.mark.parametrize("name", tc.strategies.names())
def test_a_strategys_page_says_what_when_and_whence(name):
    text = (GUIDE / "strategies" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n\n")
    for part in ("## When\n", "## Source\n", "## Measured\n", "## Options\n"):
        assert part in text
    has_class = f"tcsaea_torch.strategies.{type(tc.strategies.get(name)).__name__}\n" in text
    assert has_class or f"{{generated}} settings {name}\n" in text


def test_the_reference_has_all_public_names():
    text = "".join(page.read_text() for page in (GUIDE / "api").glob("*.md"))
    documented = set(re.findall(r"auto(?:module|class|function):: tcsaea_torch\.(\S+)", text))
    strategies = set(tc.strategies.__all__) & {"TCEHVI", "TCSAEA", "RandomSearch"}  # have pages
    assert set(tc.__all__) - strategies <= documented
    assert {"transfer", "errors", "events", "integrations"} <= documented
    pages = {page.stem for page in (GUIDE / "api").glob("*.md")} - {"index"}
    listed = (GUIDE / "api" / "index.md").read_text().split("```{toctree}\n")[1].split("```")[0]
    assert set(listed.split()) == pages


# ------------------------------------------------------------------ links


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_to_files_of_the_repository(page):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"\w+:|#", link):
            continue
        path = (page.parent / link.split("#")[0]).resolve()
        assert path.exists(), f"{link} leads nowhere"
        assert path.is_relative_to(ROOT.resolve())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_pages_and_classes_exist(page):
    for role, target in ROLE.findall(page.read_text()):
        if role == "doc":
            base_folder = SITE if target.startswith("/") else page.parent
            assert (base_folder / f"{target.lstrip('/')}.md").is_file(), target
        else:
            module, _, name = target.rpartition(".")
            assert hasattr(importlib.import_module(module), name), target


@pytest.mark.parametrize(
    "line", sorted({line for page in PAGES for line in GENERATED.findall(page.read_text())})
)
def test_generated_tables_have_rows(line, tables):
    name, *arguments = line.split()
    rows = getattr(tables, name)(*arguments).splitlines()
    widths = {row.count("|") for row in rows if row.startswith("|")}
    assert len(rows) >= 3
    assert len(widths) == 1


def test_a_generated_summary_is_that_of_the_stored_table(tmp_path, monkeypatch, tables):
    (tmp_path / "tables").mkdir()
    rows = [("p", "a", 1.0, "-"), ("p", "b", 3.0, "+"), ("q", "a", 8.0, "+"), ("q", "b", 2.0, "-")]
    rows += [("q", "c", 4.0, "≈")]
    seconds, settings = {"a": 1, "b": 2, "c": 3}, {"c": '"{""n_new"": 4, ""link"": null}"'}
    lines = ["problem,box,corr,tau,strategy,settings,n_runs,mean,vs_tc-saea-released,seconds"]
    lines += [
        f"{p},,,5,{s},{settings.get(s, '')},5,{mean},{mark},{seconds[s]}"
        for p, s, mean, mark in rows
    ]
    (tmp_path / "tables" / "x-igd.csv").write_text("\n".join(lines))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    cells = [row.strip("| ").split(" | ") for row in tables.igd("x").splitlines()[2:]]
    # Ranks: a is 1 and 3, b is 2 and 1, c is 2 of q. Ratios to the best: a 1 and 4, b 3 and 1.
    assert cells == [
        ["`b`", "1", "1.5", "2", "1 / 1", "2"],
        ["`a`", "1", "2.0", "2.5", "1 / 1", "1"],
        ["`c` n_new=4, link=None", "0", "2.0", "2", "0 / 0", "3"],
    ]
    cells = [row.strip("| ").split(" | ")[0] for row in tables.igd("x", "strategies").splitlines()]
    assert cells[2:] == ["`a`", "`b`"]  # without c, both have the mean rank 1.5


# ------------------------------------------------------------------ code


WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """Blocks run one after the other; those that need what not everybody has must parse."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "_FACTORIES", dict(base._FACTORIES))  # pages may register strategies
    names, text = {"__name__": "page"}, page.read_text()
    for file, source in FILE.findall(text):
        Path(file).write_text(source)
        if shutil.which("cc") is None:
            pytest.skip("a program of this page must be compiled")
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", Path(file).stem, file], check=True)
    for marker, code in BLOCK.findall(text):
        tree = ast.parse(code)
        if not marker:
            exec(compile(tree, name_of(page), "exec"), names)


def test_the_example_of_a_strategy_keeps_the_rules():
    code = BLOCK.findall((GUIDE / "add_strategy.md").read_text())[0][1]
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "add_strategy.md", "exec"), names)
    problem = tc.Problem(
        fast=lambda x: float(x.sum()),
        slow=lambda x: float("nan") if x[0] == 3 else float(((x - 2) ** 2).sum()),
        bounds=[[0.0, 0.0], [9.0, 9.0]],
        integers=(0, 1),
        tau=2.5,
    )
    settings = {"n_slow": 20, "n_init": 6, "strategy": names["Screening"](), "progress": False}
    runs = [tc.minimize(problem, **settings, seed=seed) for seed in (0, 0, 1)]
    assert runs[0].n_slow == 20
    assert runs[0].n_fast <= 50
    assert len(runs[0].all_X.unique(dim=0)) == len(runs[0].all_X)
    assert runs[0].all_X.equal(runs[1].all_X)
    assert not runs[0].all_X.equal(runs[2].all_X)


# ------------------------------------------------------------------ the site


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    for module in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", str(SITE)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (tmp_path / page.relative_to(SITE).with_suffix(".html")).is_file()
    html = (tmp_path / "guide" / "api" / "metrics.html").read_text()
    assert "*batch" in html
    assert "jaxtyping" not in html
