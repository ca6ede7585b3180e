"""Strategies: what to evaluate next, given all that is known."""

from tcsaea_torch.strategies.base import (
    Proposal,
    RunView,
    State,
    Strategy,
    check_proposal,
    check_strategy,
    get,
    names,
    register,
)
from tcsaea_torch.strategies.hk_rvea import HKRVEA
from tcsaea_torch.strategies.k_rvea import KRVEA
from tcsaea_torch.strategies.latency_schemes import (
    BroodInterleaving,
    FastFirst,
    SpeculativeInterleaving,
    Waiting,
)
from tcsaea_torch.strategies.random_search import RandomSearch
from tcsaea_torch.strategies.t_saea import TSAEA
from tcsaea_torch.strategies.tc_ehvi import TCEHVI
from tcsaea_torch.strategies.tc_saea import TCSAEA
from tcsaea_torch.strategies.tr_saea import TrSAEA

__all__ = [
    "HKRVEA",
    "KRVEA",
    "TCEHVI",
    "TCSAEA",
    "TSAEA",
    "BroodInterleaving",
    "FastFirst",
    "Proposal",
    "RandomSearch",
    "RunView",
    "SpeculativeInterleaving",
    "State",
    "Strategy",
    "TrSAEA",
    "Waiting",
    "check_proposal",
    "check_strategy",
    "get",
    "names",
    "register",
]
