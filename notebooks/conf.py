"""Settings of the site that `make docs` builds into build/docs."""

import sys
import typing
from importlib.util import find_spec
from pathlib import Path

# jaxtyping then shows its annotations as they are written: Float[Tensor, "*batch n d"].
typing.GENERATING_DOCUMENTATION = True

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "guide")]  # this repository's package, `_site`

project = "tcsaea_torch"
author = "the authors of tcsaea_torch"
copyright = "MIT licence"
html_title = project
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "_site",
    *(["sphinx_copybutton"] if find_spec("sphinx_copybutton") else []),
]
exclude_patterns = ["**.ipynb_checkpoints"]

smartquotes = False  # docstrings quote values: "ard"
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"

# Notebooks are shown as they are stored; nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_mock_imports = [
    name for name in ("optuna", "ax", "dask", "distributed", "pymoo") if find_spec(name) is None
]
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
nitpick_ignore_regex = [  # classes that only the library makes, and has no page for
    (
        "py:class",
        r"tcsaea_torch\..*\.(Group|SharedSurrogate|KnownNoise|Standardised|Scaling|Factorisation"
        r"|Lanes)",
    ),
]
default_role = "py:obj"  # `name` in a docstring is a link where there is something to link to
napoleon_numpy_docstring = False
napoleon_use_ivar = True
