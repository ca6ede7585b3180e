"""Strategies: what to evaluate next, given all that is known."""

from tcsaea_torch.strategies.base import (
    Proposal,
    RunView,
    State,
    Strategy,
    budget,
    check_proposal,
    check_strategy,
    get,
    names,
    register,
)
from tcsaea_torch.strategies.random_search import RandomSearch
from tcsaea_torch.strategies.tc_saea import TCSAEA

__all__ = [
    "TCSAEA",
    "Proposal",
    "RandomSearch",
    "RunView",
    "State",
    "Strategy",
    "budget",
    "check_proposal",
    "check_strategy",
    "get",
    "names",
    "register",
]
