"""Without the packages that integrations are for."""

import importlib
import subprocess
import sys

import pytest

from tcsaea_torch.errors import MissingDependencyError


@pytest.mark.parametrize(
    ("name", "needed", "message"),
    [
        ("optuna", "optuna.distributions", r"optuna needs optuna: .*'tcsaea-torch\[optuna\]'"),
        ("ax", "ax.core.data", r"ax needs ax-platform: .*'tcsaea-torch\[ax\]'"),
    ],
)
def test_the_message_names_the_extra(name, needed, message, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, needed, None)
    monkeypatch.delitem(sys.modules, f"tcsaea_torch.integrations.{name}", raising=False)
    with pytest.raises(MissingDependencyError, match=message):
        importlib.import_module(f"tcsaea_torch.integrations.{name}")


def test_the_library_does_not_import_them():
    code = (
        "import sys, tcsaea_torch, tcsaea_torch.integrations, tcsaea_torch.integrations.trials; "
        "sys.exit(bool({'ax', 'optuna'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
