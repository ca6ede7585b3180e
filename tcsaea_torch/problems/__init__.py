"""Benchmark problems by name."""

from tcsaea_torch.problems.base import Swapped, TestProblem, get, names, register
from tcsaea_torch.problems.cm_onemax import CMOneMax
from tcsaea_torch.problems.crash_beam import CrashBeam
from tcsaea_torch.problems.dtlz import DTLZ
from tcsaea_torch.problems.engineering import Engineering
from tcsaea_torch.problems.low_dimensional import LowDimensional
from tcsaea_torch.problems.rotated_dtlz2 import RotatedDTLZ2
from tcsaea_torch.problems.uf import UF
from tcsaea_torch.problems.wfg import WFG
from tcsaea_torch.problems.zdt import ZDT

__all__ = [
    "DTLZ",
    "UF",
    "WFG",
    "ZDT",
    "CMOneMax",
    "CrashBeam",
    "Engineering",
    "LowDimensional",
    "RotatedDTLZ2",
    "Swapped",
    "TestProblem",
    "get",
    "names",
    "register",
]
