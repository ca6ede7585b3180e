"""A user's file with a problem, and what tests of `tcsaea run` do with it."""

import sys
from pathlib import Path

import pytest

from tcsaea_torch import cli
from tcsaea_torch.errors import JournalError
from tcsaea_torch.study import Study

BOX = """
import os, time
import tcsaea_torch as tc
from {stem}_mesh import scale

def log(name, x):
    with open("calls.txt", "a") as file:  # one write, so that workers do not mix lines
        file.write(f"{{name}} {{os.getpid()}} {{x.tolist()!r}}\\n")

def mass(x):
    log("fast", x)
    return float((x**2).sum())

def peak(x):
    import {stem}_late  # not before it is called
    log("slow", x)
    time.sleep({pause})
    return {stem}_late.offset() + scale() * float(((x - 1) ** 2).sum())

problem = tc.Problem(fast=mass, slow=peak, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
number = 3

def make():
    return tc.Problem(fast=mass, slow=peak, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)

def make_with(tau):
    return problem

def make_nothing():
    pass

def make_trouble():
    width = 1
    return width / 0

_hidden = problem
local = tc.Problem(fast=lambda x: 1.0, slow=peak, bounds=[[0.0], [1.0]], tau=2)
"""


def write(folder, stem="box", pause=0.0):
    """Write a problem's file and its neighbours."""
    (folder / f"{stem}.py").write_text(BOX.format(stem=stem, pause=pause))
    (folder / f"{stem}_mesh.py").write_text("def scale():\n    return 2.0\n")
    (folder / f"{stem}_late.py").write_text("def offset():\n    return 0.5\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder of the test's own, with a problem; modules do not outlive the test."""
    before, path = set(sys.modules), list(sys.path)
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert sys.path == path
    left = set(sys.modules) - before
    assert "box" not in left
    for name in left:
        if name.startswith("box"):
            del sys.modules[name]


def run(*arguments):
    return cli.main(["run", *arguments])


QUICK = ["box.py:problem", "--n-slow", "8", "--n-init", "5", "--strategy", "random", "--quiet"]


def calls():
    """Return the calls of both objectives: (objective, process, point)."""
    return [tuple(line.split(" ", 2)) for line in Path("calls.txt").read_text().splitlines()]


def n_done(path):
    try:
        return sum(r.status == "done" for r in Study.read(path).state.records)
    except JournalError:  # not yet there
        return 0
