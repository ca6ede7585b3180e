"""A name for the code that a run depends on, so that results of other code never mix."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from benchmarks.suites import Definition

ROOT = Path(__file__).parent.parent
_PACKAGES = ("tcsaea_torch", "benchmarks")
_ONLY_REFUSE = ("tcsaea_torch.errors", "tcsaea_torch.validation")
"""Modules that decide whether a run begins, not how it ends."""


def fingerprint(definition: Definition) -> str:
    """Return 10 hex digits that change with the code of a run or the version of torch.

    The code is that of the strategy, of the problem, of `run_batch` and of the metrics, with
    all modules of this repository that they import, but without comments and docstrings.
    """
    strategy = definition.make_strategy()
    problem = definition.problem_for(0)
    scored = ("benchmarks.run_batch", "tcsaea_torch.metrics")
    roots = (type(strategy).__module__, type(problem).__module__, *scored)
    return _digest(roots, torch.__version__.split("+")[0])


@cache
def _digest(roots: tuple[str, ...], version: str) -> str:
    modules: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in modules and module not in _ONLY_REFUSE:
            modules.add(module)
            waiting.extend(imported_modules(module))
    text = "".join(f"# {module}\n{bare_source(path_of(module))}" for module in sorted(modules))
    return hashlib.sha256((version + text).encode()).hexdigest()[:10]


def imported_modules(module: str) -> Iterator[str]:
    """Yield the modules of this repository that a module imports by name."""
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module.split(".")[0] not in _PACKAGES:
                continue
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name for name in submodules if path_of(name).exists()]
            yield from found
            if len(found) < len(submodules):
                yield node.module
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (name for name in names if name.split(".")[0] in _PACKAGES)


def path_of(module: str) -> Path:
    """Return the file of a module or, for a package, of its `__init__`."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def bare_source(path: Path) -> str:
    """Return a module's source without comments, docstrings and layout."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # A string as a statement does nothing: docstrings, and those below fields.
            kept = [statement for statement in body if not _is_text(statement)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree) + "\n"


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
