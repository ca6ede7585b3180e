"""A program of its own: use the library where only it and its dependencies are installed.

It is run as `python -I installed.py [--from FOLDER] [--hide NAME ...]`, in an empty folder.
"""

import argparse
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NEED_AN_EXTRA = {
    "tcsaea_torch.integrations.ax": "ax",
    "tcsaea_torch.integrations.optuna": "optuna",
}
"""Modules that cannot be imported without an extra, and which one."""


class Hidden:
    """Makes packages look as if they were not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="folder", help="where the library was installed")
    parser.add_argument("--hide", nargs="*", default=())
    options = parser.parse_args()
    if options.folder:
        sys.path.insert(0, options.folder)
    hidden: Any = Hidden(options.hide)
    sys.meta_path.insert(0, hidden)

    import tcsaea_torch as tc

    home = Path(tc.__file__).parent
    assert options.folder is None or home.parent == Path(options.folder), home
    assert importlib.metadata.version("tcsaea-torch") == tc.__version__
    import_every_module(tc)
    result = use(tc)
    ask_for_extras(tc, result)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert loaded.isdisjoint(hidden.names), loaded & hidden.names
    run_the_command()


def import_every_module(tc: Any) -> None:
    for module in pkgutil.walk_packages(tc.__path__, "tcsaea_torch."):
        extra = NEED_AN_EXTRA.get(module.name)
        if extra is None:
            importlib.import_module(module.name)
        else:
            check_needs(extra, importlib.import_module, module.name)


def use(tc: Any) -> Any:
    """Run a small study with the default strategy, from functions to the points found."""
    problem = tc.Problem(
        fast=lambda x: float((x**2).sum()),
        slow=lambda x: float(((x - 1) ** 2).sum()),
        bounds=[[0.0, 0.0], [1.0, 2.0]],
        tau=2,
    )
    result = tc.minimize(problem, n_slow=6, n_init=4, seed=0, journal="study.db")
    assert result.status == "finished", result.status
    assert len(result.pareto_X) > 0
    Path("study.db").unlink()
    assert tc.problems.get("kursawe").pareto_front(9).shape == (9, 2)  # of a data file
    return result


def ask_for_extras(tc: Any, result: Any) -> None:
    check_needs("plot", result.plot)
    check_needs("plot", result.to_dataframe)
    check_needs("plot", tc.plotting.plot_front, result)
    check_needs("pymoo", tc.Problem.from_pymoo, "zdt1")


def check_needs(extra: str, function: Any, *arguments: Any) -> None:
    """Check that a call fails, and that the message says what to install."""
    from tcsaea_torch.errors import MissingDependencyError

    message = "nothing was missing"
    try:
        function(*arguments)
    except MissingDependencyError as error:
        message = str(error)
    assert f"pip install 'tcsaea-torch[{extra}]'" in message, (function, message)


def run_the_command() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="tcsaea")
    status: Any = "it did not end"
    try:
        script.load()(["--version"])
    except SystemExit as end:
        status = end.code
    assert status == 0, status


if __name__ == "__main__":
    main()
