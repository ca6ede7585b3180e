"""What the site needs beyond Sphinx: tables made of registries and results, and docstrings.

Docstrings are plain text with `names` in backticks. Here they become reStructuredText: formulas
and code that are set apart by indentation stay as they are, and signs with a meaning of their
own lose it.
"""

import ast
import builtins
import re
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any

import _tables
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import _MockObject
from sphinx.util.docutils import SphinxDirective

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    "benchmarks/README.md": "guide/benchmarks.md",
    "CHANGELOG.md": "guide/changelog.md",
    "GLOSSARY.md": "guide/glossary.md",
}
"""Files of the repository that are pages of the site."""

_FILE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_SPAN = re.compile(r"(``[^`]+``|`[^`]+`)")
_SIGN = re.compile(r"([|*\\]|_(?!\w))")
_ITEM = re.compile(r"(\s*)(- |\d+\. )")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    # Classes of packages that are missing stand in annotations such as `BaseSampler | None`.
    _MockObject.__or__ = _MockObject.__ror__ = lambda self, other: Any | None
    app.add_directive("generated", Generated)
    app.connect("source-read", insert_files)
    app.connect("autodoc-process-docstring", clean_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", name_factories)
    app.connect("missing-reference", find_object)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Generated(SphinxDirective):
    """A part of a page that is made of what the library registers or benchmarks stored."""

    required_arguments = 1
    optional_arguments = 10

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the table that the first argument names."""
        self.env.note_reread()  # its sources are no files that Sphinx watches
        name, *arguments = self.arguments
        text = getattr(_tables, name)(*arguments)
        return self.parse_text_to_nodes(text)


# ------------------------------------------------------------------ files of the repository


def insert_files(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put files of the repository into pages, and let links lead to what is outside the site."""
    page = Path(app.srcdir) / app.env.doc2path(docname, base=False)
    if page.suffix != ".md":
        return

    def insert(match: re.Match[str]) -> str:
        path = REPOSITORY / match[1]
        app.env.note_dependency(path)
        return _linked(path.read_text(), path.parent, page)

    # A toctree's own `glob` complains where there are no notebooks.
    notebooks = "\n".join(sorted(path.stem for path in page.parent.glob("[0-9]_*.ipynb")))
    text = source[0].replace("<!-- notebooks -->", notebooks)
    source[0] = _FILE.sub(insert, _linked(text, page.parent, page))


def _linked(text: str, folder: Path, page: Path) -> str:
    """Make links, relative to a folder, links of a page: to other pages, or to downloads."""

    def rewrite(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if not target.exists() or not target.is_relative_to(REPOSITORY):
            return match[0]  # Sphinx complains
        name = str(target.relative_to(REPOSITORY))
        other = Path("notebooks", PAGES[name]) if name in PAGES else Path(name)
        up = "../" * (len(page.relative_to(REPOSITORY).parts) - 1)
        if target.is_dir():  # which is no download
            return f"]({up}{other})" if other.parts[0] == "notebooks" else "]"
        scheme = "" if other.parts[0] == "notebooks" or other.suffix != ".md" else "path:"
        return f"]({scheme}{up}{other}{match[2] or ''})"

    return _LINK.sub(rewrite, text)


# ------------------------------------------------------------------ docstrings


def clean_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring, in place."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # or napoleon takes what precedes a colon for a type
    cleaned: list[str] = []
    prose: list[str] = []
    indent, was_blank, kind = 0, True, "text"

    def end_prose() -> None:
        cleaned.extend(_escaped("\n".join(prose)).split("\n") if prose else [])
        prose.clear()

    for number, line in enumerate(lines):
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if text.startswith(">>>"):
            kind = "doctest"
        elif not text:
            kind = "text" if kind == "doctest" else kind
        elif kind == "code" and depth <= indent:
            kind = "text"
        elif kind == "text" and was_blank and depth > indent and not _ITEM.match(line):
            kind = "code"
            end_prose()
            cleaned += [" " * indent + f".. code-block:: {_language(lines[number:], depth)}", ""]
        if text and kind == "text":
            item = _ITEM.match(line)
            indent = len(item[0]) if item else depth
            prose.append(line)
        else:
            end_prose()
            cleaned.append(line)
        was_blank = not text
    end_prose()
    lines[:] = cleaned


def _language(lines: list[str], depth: int) -> str:
    """Return whether the block that begins here, indented so deep, is code or a formula."""
    block = takewhile(lambda line: not line or line.startswith(" " * depth), lines)
    try:
        ast.parse(dedent("\n".join(block)))
    except SyntaxError:
        return "text"
    return "python"


def name_factories(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Replace what Python cannot read, or the signature would be one long line."""
    if signature and "<factory>" in signature:
        return re.sub(r"~[\w.]*\.(\w)", r"\1", signature.replace("<factory>", "...")), returns
    return None


def _escaped(text: str) -> str:
    """Take from signs outside of backticks what they mean in reStructuredText."""
    parts = _SPAN.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = _SIGN.sub(r"\\\1", parts[i])
        if i and parts[i][:1].isalnum():
            parts[i] = "\\ " + parts[i]  # a plural: `Candidate`s
    return "".join(parts)


# ------------------------------------------------------------------ references


def find_object(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.Element
) -> nodes.Node | None:
    """Find what is documented under another path: where it is imported from, or its last name.

    Words in backticks that name nothing, and what other libraries define, stay text.
    """
    if node.get("refdomain") != "py":
        return None
    domain, target = env.domains.python_domain, str(node["reftarget"])
    last = target.split(".")[-1].removesuffix("()")
    found = [name for name in domain.objects if name.split(".")[-1] == last]
    found = [name for name in found if name.endswith("." + target)] or (
        found if last[:1].isupper() or target.startswith("tcsaea_torch.") else []
    )
    if len(found) == 1:
        node["reftarget"] = found[0]
        page = node.get("refdoc", "")
        return domain.resolve_xref(env, page, app.builder, "obj", found[0], node, contnode)
    is_ours = target.startswith("tcsaea_torch.") and node["reftype"] != "obj"
    return None if is_ours and not hasattr(builtins, last) else contnode
