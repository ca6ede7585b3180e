"""Benchmark problems by name."""

from tcsaea_torch.problems.base import TestProblem, get, names, register
from tcsaea_torch.problems.cm_onemax import CMOneMax
from tcsaea_torch.problems.crash_beam import CrashBeam
from tcsaea_torch.problems.dtlz import DTLZ
from tcsaea_torch.problems.uf import UF

__all__ = ["DTLZ", "UF", "CMOneMax", "CrashBeam", "TestProblem", "get", "names", "register"]
