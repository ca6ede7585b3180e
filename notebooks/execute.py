"""Run notebooks from their sources: `python notebooks/execute.py [1_quickstart.py ...]`.

Each `.py` in percent format gives the `.ipynb` beside it, with outputs; without arguments all of
them are run. They work in an empty folder, which is removed at the end. Nothing that changes
from run to run is stored but the outputs: no versions, no times, no random ids.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TIMEOUT_S = 600


def execute(source: Path) -> Any:
    """Return a notebook with what its cells put out.

    Args:
        source: The notebook in percent format.
    """
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=TIMEOUT_S,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    notebook.metadata = nbformat.from_dict(METADATA)  # the kernel adds its version
    return notebook


def main(names: list[str]) -> None:
    """Run the named notebooks, or all, one after the other."""
    os.environ.pop("SMOKE_TEST", None)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # more wait for each other on a busy machine
    path = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # this checkout's code
    sources = [FOLDER / Path(name).name for name in names] or sorted(FOLDER.glob("[0-9]*.py"))
    for source in sources:
        start = time.perf_counter()
        nbformat.write(execute(source), source.with_suffix(".ipynb"))
        print(f"{source.stem}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
