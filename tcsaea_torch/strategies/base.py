"""What a strategy sees, what it returns, and the register of strategies.

A strategy is a frozen configuration with two pure functions. It never calls an
objective and never writes to the archive; its memory is a flat `State` of named tensors
and scalars that the caller keeps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.errors import InvalidInputError, ProtocolError
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Bool, Float, Int, Objective, Tensor
from tcsaea_torch.validation import (
    check_callable,
    check_choice,
    check_options,
    check_text,
    describe,
)

FAST, SLOW = Objective.FAST.column, Objective.SLOW.column

State = dict[str, Tensor | int | float | str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """Points to evaluate next, and with which objectives.

    Row k of a proposal becomes row `len(archive) + k` of the archive, idle rows too.
    """

    X: Float[Tensor, "b q d"]
    """Points in the unit cube."""
    evaluation_mask: Bool[Tensor, "b q 2"]
    """Which of (fast, slow) to evaluate; a row without any is idle."""
    archive_mask: Bool[Tensor, "b n 2"] | None = None
    """Values of rows of the archive to evaluate too, such as the slow one where only the
    fast one is known."""
    waits_for: Bool[Tensor, "b n 2"] | None = None
    """Outstanding values of archive rows that the strategy needs before it can go on."""

    @classmethod
    def nothing(cls, run: "RunView", waits_for: Tensor | None = None) -> "Proposal":
        """Propose no points, waiting for some values or at the end of the budget."""
        X = run.archive.X[:, :0]
        mask = torch.zeros(*X.shape[:2], 2, dtype=torch.bool, device=X.device)
        return cls(X=X, evaluation_mask=mask, waits_for=waits_for)

    @classmethod
    def of_rows(cls, archive_mask: Bool[Tensor, "b n 2"], run: "RunView") -> "Proposal":
        """Propose values of rows of the archive, and no new points."""
        return replace(cls.nothing(run), archive_mask=archive_mask)

    @property
    def n_asked(self) -> Int[Tensor, "b 2"]:
        """Evaluations of (fast, slow) that are asked for."""
        n = self.evaluation_mask.sum(dim=1)
        return n if self.archive_mask is None else n + self.archive_mask.sum(dim=1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for in any run."""
        return not bool((self.n_asked > 0).any())


@dataclass(frozen=True, kw_only=True, eq=False)
class RunView:
    """What a strategy may know of b runs."""

    archive: Archive
    """All rows so far, in the unit cube and minimised."""
    pending: Bool[Tensor, "b n 2"]
    """Values that were asked for and have neither come nor failed."""
    failed: Bool[Tensor, "b n 2"]
    """Values that were asked for and failed for good."""
    used: Int[Tensor, "b 2"]
    """Evaluations asked for so far, of (fast, slow)."""
    total: Int[Tensor, "b 2"]
    """Budgets of evaluations: floor(tau n_slow) fast ones and n_slow slow ones."""
    n_init: int
    """Size of the initial design that is still wanted; attached points reduce it."""
    tau: float
    """Fast evaluations in the time of one slow one."""
    seeds: Int[Tensor, " b"]
    """One seed for each run."""
    grid: Float[Tensor, " d"] | None = None
    """`Problem.grid`: steps of integer and fixed dimensions, or None."""
    ref_point: Float[Tensor, "b 2"] | None = None
    """`Problem.ref_point`, minimised: values beyond it are of no interest. None: none was given."""
    wanted: Int[Tensor, "b 2"] | None = None
    """How many evaluations of (fast, slow) there are free workers for. Only asynchronous
    strategies are told; None: as many as a strategy has for one step."""

    @property
    def b(self) -> int:
        """Number of runs."""
        return self.archive.X.shape[0]

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.archive.X.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the run."""
        return self.archive.X.dtype

    @property
    def device(self) -> torch.device:
        """Device of the run."""
        return self.archive.X.device

    @cached_property
    def exists(self) -> Bool[Tensor, "b n"]:
        """Rows that are no padding: asked for or attached."""
        return (self.archive.observed | self.pending | self.failed).any(dim=-1)

    @property
    def left(self) -> Int[Tensor, "b 2"]:
        """Evaluations that may still be asked for."""
        return (self.total - self.used).clamp_min(0)


@runtime_checkable
class Strategy(Protocol):
    """How to choose the next evaluations.

    A strategy whose attribute `ignores_delay` is True has another budget, see `budget`. One
    that proposes at any time, whatever is outstanding, is an `AsynchronousStrategy`.
    """

    @property
    def name(self) -> str:
        """The strategy's registered name."""
        ...

    def init(self, run: RunView) -> State:
        """Return the state before the first step."""
        ...

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step, all that can be decided now, and the state after it."""
        ...


@runtime_checkable
class AsynchronousStrategy(Strategy, Protocol):
    """A strategy that can propose while results are outstanding, if it is so configured."""

    @property
    def asynchronous(self) -> bool:
        """Whether it does."""
        ...

    def offers(self, state: State, run: RunView) -> Int[Tensor, "b 2"]:
        """Return how many evaluations of (fast, slow) it would propose now, if wanted."""
        ...


def asynchronous(strategy: Strategy) -> AsynchronousStrategy | None:
    """Return the strategy if it proposes at any time, else None."""
    if isinstance(strategy, AsynchronousStrategy) and strategy.asynchronous:
        return strategy
    return None


def budget(strategy: Strategy, problem: Problem, n_slow: int) -> tuple[int, int]:
    """Return the evaluations of (fast, slow) that n_slow slow ones stand for.

    They are (floor(tau n_slow), n_slow); a reference that ignores the delay may use as many
    slow ones as fast ones.
    """
    n_fast = problem.n_fast(n_slow)
    return n_fast, n_fast if getattr(strategy, "ignores_delay", False) else n_slow


def tensor_in(state: State, key: str) -> Tensor:
    """Return an entry of the state that is a tensor."""
    value = state[key]
    assert isinstance(value, Tensor)
    return value


def check_proposal(name: str, proposal: Any, run: RunView) -> None:
    """Refuse a proposal that cannot be recorded, whoever wrote the strategy.

    Args:
        name: The strategy's name, for the message.
        proposal: What it proposed.
        run: What it was asked about.

    Raises:
        ProtocolError: If shapes are wrong, points are outside the unit cube or NaN, a
            value is asked for again, or the budget would be exceeded.
    """
    if not isinstance(proposal, Proposal):
        raise ProtocolError(f"strategy {name!r} must propose a Proposal, got {describe(proposal)}")
    X, mask = proposal.X, proposal.evaluation_mask
    rows = X.shape[1] if X.ndim == 3 else -1
    if tuple(X.shape) != (run.b, rows, run.d) or tuple(mask.shape) != (run.b, rows, 2):
        raise ProtocolError(
            f"strategy {name!r} must propose X of shape ({run.b}, q, {run.d}) with a mask "
            f"({run.b}, q, 2), got {tuple(X.shape)} and {tuple(mask.shape)}"
        )
    inside = ((X >= 0) & (X <= 1)).all(dim=-1)  # False for NaN
    if bool((mask.any(dim=-1) & ~inside).any()):
        raise ProtocolError(f"strategy {name!r} must propose points of the unit cube")
    again = proposal.archive_mask
    if again is not None:
        known = run.archive.observed | run.pending | run.failed
        if again.dtype != torch.bool or again.shape != known.shape:
            raise ProtocolError(
                f"strategy {name!r} must propose a boolean archive_mask of shape "
                f"{tuple(known.shape)}, got {describe(again)}"
            )
        if bool((again & (known | ~run.exists.unsqueeze(-1))).any()):
            raise ProtocolError(
                f"strategy {name!r} must ask for missing values of the archive's points only"
            )
    if bool((run.used + proposal.n_asked > run.total).any()):
        raise ProtocolError(f"strategy {name!r} proposes more than the budget")


_FACTORIES: dict[str, Callable[..., Strategy]] = {}


def register(name: str, factory: Callable[..., Strategy]) -> None:
    """Add a strategy under a name; `factory(**options)` returns its configuration."""
    check_text("name", name)
    check_callable("factory", factory)
    _FACTORIES[name] = factory


def names() -> tuple[str, ...]:
    """Return the names that `get` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def get(name: str, **options: Any) -> Strategy:
    """Make the strategy of this name.

    Args:
        name: One of `names()`.
        **options: Fields of its configuration.

    Raises:
        InvalidInputError: If the name or an option is unknown, or a value out of range.
    """
    factory = _FACTORIES[check_choice("strategy", name, _FACTORIES)]
    check_options(f"strategy {name!r}", factory, options)
    return factory(**options)


def check_strategy(value: Any) -> Strategy:
    """Return a strategy given as an object or by name.

    Raises:
        InvalidInputError: If it is neither.
    """
    if isinstance(value, str):
        return get(value)
    if isinstance(value, type) or not isinstance(value, Strategy):
        raise InvalidInputError(
            f"strategy must be a name or a configured strategy such as TCEHVI(), got {value!r}"
        )
    return value
