"""Benchmark problems by name."""

from tcsaea_torch.problems.base import TestProblem, get, names, register
from tcsaea_torch.problems.crash_beam import CrashBeam
from tcsaea_torch.problems.dtlz import DTLZ

__all__ = ["DTLZ", "CrashBeam", "TestProblem", "get", "names", "register"]
