import textwrap

import pytest

from benchmarks import fingerprint as module
from benchmarks.fingerprint import bare_source, fingerprint, imported_modules
from benchmarks.suites import Definition

SOURCE = '''
    """A module."""

    from pack.other import thing  # why


    class Config:
        """A class."""

        size: int = 3
        """A field."""


    def add(a, b):
        """Add."""
        # both
        return a + b + thing(Config.size)
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, as if it were this repository."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "_PACKAGES", ("pack",))
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("from pack.unused import nothing\n")
    (folder / "one.py").write_text(textwrap.dedent(SOURCE))
    (folder / "other.py").write_text("def thing(x):\n    return x\n")
    (folder / "unused.py").write_text("nothing = 0\n")
    yield folder
    module._digest.cache_clear()


def digest(version="2.13.0"):
    module._digest.cache_clear()
    return module._digest(("pack.one",), version)


def test_comments_docstrings_and_layout_do_not_count(package):
    before = digest()
    text = (package / "one.py").read_text()
    for old, new in (
        ("# why", "# other reasons"),
        ('"""Add."""', '"""Sum."""'),
        ("\n\n", "\n\n\n"),
    ):
        (package / "one.py").write_text(text.replace(old, new))
        assert digest() == before
    assert '"""' not in bare_source(package / "one.py")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("one", "a + b", "a - b"), ("one", "= 3", "= 4"), ("other", "return x", "return -x")],
)
def test_code_counts_also_of_imported_modules(package, name, old, new):
    before = digest()
    path = package / f"{name}.py"
    path.write_text(path.read_text().replace(old, new))
    assert digest() != before


def test_other_modules_do_not_count(package):
    before = digest()
    (package / "unused.py").write_text("nothing = 1\n")
    assert digest() == before


def test_version_of_torch_counts(package):
    assert digest("2.13.0") != digest("2.11.0")


def test_imports_are_found_in_all_their_forms(package):
    (package / "forms.py").write_text(
        "import torch, pack.one\n"
        "from pack import other, nothing\n"
        "from collections import abc\n"
        "def f():\n    from pack.unused import nothing\n"
    )
    assert set(imported_modules("pack.forms")) == {"pack.one", "pack.other", "pack", "pack.unused"}


def test_every_definition_has_a_fingerprint_of_its_strategy_and_problem():
    a, b = (Definition(problem="dtlz2", strategy=name) for name in ("tc-saea", "random"))
    assert fingerprint(a) != fingerprint(b)
    assert fingerprint(a) == fingerprint(Definition(problem="dtlz7", strategy="nt-saea"))
    assert fingerprint(a) != fingerprint(Definition(problem="uf1", strategy="tc-saea"))
    assert len(fingerprint(a)) == 10
