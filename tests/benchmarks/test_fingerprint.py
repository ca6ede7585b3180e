import textwrap

import pytest

from benchmarks import fingerprint as module
from benchmarks.definitions import Definition
from benchmarks.fingerprint import fingerprint, used_code

ONE = '''
    """A module."""

    from pack import whole
    from pack.other import thing as renamed  # why
    from collections import abc


    class Config:
        """A class."""

        size: int = 3
        """A field."""


    def add(a, b):
        """Add."""
        # both
        from pack.late import later

        return a + b + renamed(Config.size) + whole.part() + later()
'''

OTHER = """
    LIMIT, UNUSED = 3, 4
    CAP: int = 5
    NOBODY = 6


    def thing(x):
        return min(x, LIMIT, helper(x))


    def helper(x):
        return CAP


    def stranger(x):
        return NOBODY
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package, as if it were this repository."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "_PACKAGES", ("pack",))
    folder = tmp_path / "pack"
    folder.mkdir()
    for name, text in {
        "__init__": "from pack.unused import nothing\n",
        "one": textwrap.dedent(ONE),
        "other": textwrap.dedent(OTHER),
        "unused": "nothing = 0\n",
        "whole": "def part():\n    return 1\n",
        "late": "def later():\n    return 2\n",
    }.items():
        (folder / f"{name}.py").write_text(text)
    yield folder
    forget()


def forget():
    module._digest.cache_clear()
    module._statements.cache_clear()


def digest(version="2.13.0"):
    forget()
    return module._digest(("pack.one",), version)


def change(folder, name, old, new):
    path = folder / f"{name}.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# why", "# other reasons"), ('"""Add."""', '"""Sum."""'), ('"""A field."""', '"""F."""'),
        ('"""A module."""', '"""M."""'), ("\n\n\n", "\n\n\n\n"), ("# both", ""),
    ],
)  # fmt: skip
def test_comments_docstrings_and_layout_do_not_count(package, old, new):
    before = digest()
    change(package, "one", old, new)
    assert digest() == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("one", "a + b", "a - b"),
        ("one", "size: int = 3", "size: int = 4"),
        ("other", "return min(", "return max("),
        ("other", "return CAP", "return -CAP"),  # used by what is used
        ("other", "LIMIT, UNUSED = 3", "LIMIT, UNUSED = 2"),
        ("other", "CAP: int = 5", "CAP: int = 4"),
        ("whole", "return 1", "return 3"),
        ("late", "return 2", "return 3"),
    ],
)
def test_code_counts_with_all_that_it_uses(package, name, old, new):
    before = digest()
    change(package, name, old, new)
    assert digest() != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("unused", "= 0", "= 1"),
        ("other", "return NOBODY", "return 0"),
        ("other", "NOBODY = 6", "NOBODY = 7"),
        ("other", "def stranger", "def newcomer(x):\n    return x\n\n\ndef stranger"),
    ],
)
def test_what_is_not_used_does_not_count(package, name, old, new):
    before = digest()
    change(package, name, old, new)
    assert digest() == before


def test_statements_that_only_act_count(package):
    before = digest()
    change(package, "other", "def stranger", "helper(1)\n\n\ndef stranger")
    assert digest() != before


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("check(self.size)", False),
        ("low, high = self.size, 4\n        assert low < high", False),
        ("object.__setattr__(self, 'size', 4)", True),
        ("keep_checked(self, check, 'size')", True),
        ("self.size = 4", True),
        ("self.size += 4", True),
        ("self.__dict__['size'] = 4", True),
    ],
)
def test_a_check_of_a_configuration_counts_if_it_may_set_something(package, body, counts):
    before = digest()
    change(
        package,
        "one",
        "    size: int = 3\n",
        f"""
    size: int = 3

    def __post_init__(self):
        {body}

""",
    )
    assert (digest() != before) == counts


def test_version_of_torch_counts(package):
    assert digest("2.13.0") != digest("2.11.0")


def test_what_a_run_uses_is_found():
    code = used_code(("tcsaea_torch.strategies.tc_saea", "benchmarks.run_batch"))
    modules = {name for name, _ in code}
    for name in ("models.fitting", "models.likelihood", "evolution.rvea", "kernels", "rng", "rows"):
        assert f"tcsaea_torch.{name}" in modules
    sources = [source for name, source in code if name == "tcsaea_torch.correlations"]
    assert any("def power_exponential" in source for source in sources)
    sources = [source for name, source in code if name == "tcsaea_torch.kernels"]
    # The kernel for GPyTorch plays no part in a run.
    assert not any("class PowerExponentialKernel" in source for source in sources)


def test_every_definition_has_a_fingerprint_of_its_strategy_and_problem():
    a, b = (Definition(problem="dtlz2", strategy=name) for name in ("tc-saea", "random"))
    assert fingerprint(a) != fingerprint(b)
    assert fingerprint(a) == fingerprint(Definition(problem="dtlz7", strategy="nt-saea"))
    assert fingerprint(a) != fingerprint(Definition(problem="uf1", strategy="tc-saea"))
    assert len(fingerprint(a)) == 10


def test_which_objective_is_slow_does_not_change_the_code():
    a, b = (Definition(problem="zdt1", strategy="tc-saea", slow=slow) for slow in (0, 1))
    assert fingerprint(a) == fingerprint(b)
    assert fingerprint(a) != fingerprint(Definition(problem="wfg4", strategy="tc-saea", slow=0))
