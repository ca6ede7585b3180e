"""A name for the code that a run depends on, so that results of other code never mix."""

import ast
import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.definitions import Definition
from tcsaea_torch.problems import Swapped

ROOT = Path(__file__).parent.parent
_PACKAGES = ("tcsaea_torch", "benchmarks")
_ONLY_REFUSE = ("tcsaea_torch.errors", "tcsaea_torch.validation")
"""Modules that decide whether a run begins, not how it ends."""

_ALL = "*"


def fingerprint(definition: Definition) -> str:
    """Return 10 hex digits that change with the code of a run or the version of torch.

    The code is the modules of the strategy, of the problem, of `run_batch` and of the metrics,
    with all that they use of other modules of this repository: functions, classes and constants
    one by one, so that a new function next to them changes nothing. Comments, docstrings and
    layout do not count, nor what can only refuse a configuration. For a peer it is its module
    and the versions of its packages in place of the strategy and `run_batch`.
    """
    problem = definition.problem_for(0)
    if isinstance(problem, Swapped):  # which is part of every problem's base
        problem = problem.original
    problem = type(problem).__module__
    torch_version, peer = torch.__version__.split("+")[0], definition.peer
    if peer is not None:
        roots = (peer.search.__module__, "benchmarks.peers.base", problem, "tcsaea_torch.metrics")
        return _digest(roots, "; ".join([torch_version, *map(_version, peer.packages)]))
    strategy = type(definition.make_strategy()).__module__
    return _digest(
        (strategy, problem, "benchmarks.run_batch", "tcsaea_torch.metrics"), torch_version
    )


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


@cache
def _digest(roots: tuple[str, ...], version: str) -> str:
    text = "".join(f"# {name}\n{source}\n" for name, source in sorted(used_code(roots)))
    return hashlib.sha256((version + text).encode()).hexdigest()[:10]


def used_code(roots: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return (module, source) of each statement that some modules consist of or use."""
    found: set[tuple[str, str]] = set()
    waiting = [(module, _ALL) for module in roots]
    seen = set(waiting)
    while waiting:
        module, name = waiting.pop()
        if module in _ONLY_REFUSE:
            continue
        for statement in _statements(module):
            defined = _defined_by(statement)
            if name != _ALL and defined and name not in defined:
                continue
            if isinstance(statement, ast.Import | ast.ImportFrom):
                uses = _imports(statement, only=None if name == _ALL else name)
            else:
                found.add((module, ast.unparse(statement)))
                nodes = list(ast.walk(statement))
                imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
                uses = {(module, node.id) for node in nodes if isinstance(node, ast.Name)}
                uses = uses.union(*map(_imports, imports))
            waiting.extend(uses - seen)
            seen |= uses
    return found


@cache
def _statements(module: str) -> list[ast.stmt]:
    """Return the top-level statements of a module, without what changes no result."""
    path = path_of(module)
    tree = ast.parse(path.read_text()) if path.exists() else ast.Module(body=[], type_ignores=[])
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [item for item in body if not _is_text(item) and not _only_refuses(item)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree.body


def _defined_by(statement: ast.stmt) -> set[str]:
    """Return the names that a statement gives to its module; none for one that only acts."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
        case ast.Assign(targets=targets):
            nodes = [node for target in targets for node in ast.walk(target)]
            return {node.id for node in nodes if isinstance(node, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _imports(
    statement: ast.Import | ast.ImportFrom, only: str | None = None
) -> set[tuple[str, str]]:
    """Return what a statement imports from this repository, as (module, name)."""
    uses = set()
    for alias in statement.names:
        if only is not None and only != (alias.asname or alias.name).split(".")[0]:
            continue
        source = statement.module if isinstance(statement, ast.ImportFrom) else alias.name
        if source is None or source.split(".")[0] not in _PACKAGES:
            continue
        if isinstance(statement, ast.Import):
            uses.add((source, _ALL))
        elif path_of(f"{source}.{alias.name}").exists():
            uses.add((f"{source}.{alias.name}", _ALL))
        else:
            uses.add((source, alias.name))
    return uses


def path_of(module: str) -> Path:
    """Return the file of a module or, for a package, of its `__init__`."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _only_refuses(node: ast.stmt) -> bool:
    """Say whether this is a `__post_init__` that sets nothing: all it can do is raise."""
    if not isinstance(node, ast.FunctionDef) or node.name != "__post_init__":
        return False
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    called = {getattr(f, "id", None) or getattr(f, "attr", None) for f in calls}
    stores = (n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Subscript))
    is_stored = any(not isinstance(n.ctx, ast.Load) for n in stores)
    return not is_stored and called.isdisjoint({"__setattr__", "setattr", "keep_checked"})


def _is_text(node: ast.stmt) -> bool:
    """Say whether this is a string alone: a docstring, or one below a field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
