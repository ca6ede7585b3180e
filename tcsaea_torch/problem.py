"""The user's problem: two functions, a box, and how much slower the slow one is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Float, Objective, Tensor
from tcsaea_torch.validation import (
    as_float_tensor,
    as_scalar,
    check_bool,
    check_bounds,
    check_callable,
    check_choice,
    check_float_tensor,
    check_int,
    check_names,
    check_pair,
    check_real,
    check_vector,
    describe,
)

if TYPE_CHECKING:
    import botorch.test_functions.base

    import tcsaea_torch.problems.botorch_adaptors
    import tcsaea_torch.problems.pymoo_adaptor

DIRECTIONS = ("minimize", "maximize")


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Two objectives of one design, one fast to evaluate and one slow.

    Example:
        >>> problem = Problem(
        ...     fast=lambda x: float((x**2).sum()),
        ...     slow=lambda x: float(((x - 1) ** 2).sum()),
        ...     bounds=[[0.0, 0.0], [1.0, 2.0]],
        ...     tau=5,
        ... )
        >>> problem.d
        2

    Raises:
        InvalidInputError: If an argument is not as described below.
    """

    fast: Callable[[Any], Any]
    """The fast objective, of one point or of many (see `vectorized`)."""
    slow: Callable[[Any], Any]
    """The slow objective."""
    bounds: Any
    """`2 x d`: the lower row, then the upper row. Equal bounds fix a parameter."""
    tau: float
    """How many fast evaluations take the time of one slow one; real, >= 1."""
    names: Sequence[str] | None = None
    """A name for each dimension; x0, x1, ... by default."""
    integers: Sequence[Any] = ()
    """Dimensions that take integers only, by number or name; their bounds must be integers."""
    directions: Sequence[str] = ("minimize", "minimize")
    """"minimize" or "maximize" for (fast, slow). Users see their own signs everywhere."""
    vectorized: bool = False
    """False: the functions get one point, a numpy float64 array `d`, and return a number.
    True: they get a torch tensor `n x d` on the run's device and return n values."""
    ref_point: Any = None
    """Reference point of the hypervolume in the user's units; None: taken from the
    initial design."""
    objective_names: Sequence[str] | None = None
    """Names of (fast, slow) for pictures, with units if they have any, such as
    ("mass [kg]", "deceleration [g]"); None: "fast objective" and "slow objective"."""

    def __post_init__(self) -> None:
        def set_field(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # the normalised form of what was given

        check_callable("fast", self.fast)
        check_callable("slow", self.slow)
        set_field("bounds", check_bounds(self.bounds))
        set_field("tau", check_real("tau", self.tau, minimum=1.0))
        set_field("names", check_names("names", self.names, length=self.d))
        set_field("integers", self._check_integers())
        set_field("directions", self._check_directions())
        set_field("vectorized", check_bool("vectorized", self.vectorized))
        if self.ref_point is not None:
            ref_point = check_vector("ref_point", self.ref_point, length=2)
            if not ref_point.isfinite().all():
                raise InvalidInputError(f"ref_point must be finite, got {ref_point.tolist()}")
            set_field("ref_point", ref_point)
        if self.objective_names is not None:
            set_field("objective_names", self._check_objective_names())

    def _check_integers(self) -> tuple[int, ...]:
        if isinstance(self.integers, str) or not isinstance(self.integers, Sequence):
            raise InvalidInputError(
                f"integers must be a sequence of dimensions or names, got {describe(self.integers)}"
            )
        names, checked = tuple(self.names or ()), []
        for given in self.integers:
            if isinstance(given, str):
                k = names.index(check_choice("integers", given, names))
            else:
                k = check_int("integers", given, minimum=0)
            if k >= self.d:
                raise InvalidInputError(f"integers must be dimensions below {self.d}, got {k}")
            low, high = self.bounds[:, k].tolist()
            if low != round(low) or high != round(high):
                raise InvalidInputError(
                    f"bounds must be integers in integer dimension {k}, got ({low}, {high})"
                )
            checked.append(k)
        return tuple(sorted(set(checked)))

    def _check_directions(self) -> tuple[str, ...]:
        is_pair = isinstance(self.directions, Sequence) and len(self.directions) == 2
        if isinstance(self.directions, str) or not is_pair:
            raise InvalidInputError(
                "directions must be a pair such as ('minimize', 'maximize'), "
                f"got {describe(self.directions)}"
            )
        return tuple(check_choice("directions", value, DIRECTIONS) for value in self.directions)

    def _check_objective_names(self) -> tuple[str, ...]:
        names = check_pair("objective_names", self.objective_names)
        if not all(isinstance(name, str) and name for name in names) or names[0] == names[1]:
            raise InvalidInputError(
                f"objective_names must be two different names, got {describe(names)}"
            )
        return names

    @property
    def d(self) -> int:
        """Number of dimensions of the design space."""
        return self.bounds.shape[1]

    def n_fast(self, n_slow: int) -> int:
        """Return floor(tau n_slow), the fast evaluations that n_slow slow ones allow."""
        n_slow = check_int("n_slow", n_slow, minimum=0)
        if self.tau * n_slow >= 2**53:
            raise InvalidInputError(
                f"n_slow must be so small that tau n_slow is below 2^53, got {n_slow}"
            )
        # The tiny number keeps 1.15 * 100 from losing a call to rounding.
        return int(self.tau * n_slow + 1e-9)

    @cached_property
    def signs(self) -> Float[Tensor, "2"]:
        """Factors that turn the user's values into minimised ones, and back."""
        return torch.tensor(
            [1.0 if way == "minimize" else -1.0 for way in self.directions], dtype=torch.float64
        )

    @cached_property
    def grid(self) -> Float[Tensor, " d"] | None:
        """Steps per dimension in the unit cube: inf if continuous, 0 if fixed.

        None where every dimension is continuous, the usual case.
        """
        span = self.bounds[1] - self.bounds[0]
        steps = torch.full_like(span, torch.inf)
        steps[list(self.integers)] = span[list(self.integers)]
        steps[span == 0] = 0.0
        return None if steps.isinf().all() else steps

    def from_unit(self, U: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Map the unit cube onto the user's box, in float64 and exactly at the bounds.

        Integer dimensions are rounded, and no rounding error leaves the box.
        """
        check_float_tensor("U", U, f"of shape (*batch, {self.d})", (self.d,), batched=True)
        low, high = self.bounds.to(U.device)
        X = low.lerp(high, U.double())
        if self.integers:
            k = list(self.integers)
            X[..., k] = X[..., k].round()
        return X.clamp(low, high)

    def to_unit(self, X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Map the user's box onto the unit cube; fixed dimensions become 0."""
        check_float_tensor("X", X, f"of shape (*batch, {self.d})", (self.d,), batched=True)
        low, high = self.bounds.to(X)
        span = high - low
        return torch.where(span > 0, (X - low) / torch.where(span > 0, span, 1.0), 0.0)

    def function_of(self, objective: Objective | str) -> Callable[[Any], Any]:
        """Return the function that evaluates an objective, "fast" or "slow"."""
        name = check_choice("objective", objective, Objective)
        return self.fast if name == Objective.FAST else self.slow

    @staticmethod
    def from_botorch(
        test_problem: Any,
        *,
        slow: int = 1,
        tau: float = 5.0,
        names: Sequence[str] | None = None,
    ) -> "tcsaea_torch.problems.botorch_adaptors.FromBotorch":
        """Make a problem of one of BoTorch's test problems with two objectives.

        Values keep BoTorch's signs: with `negate` both objectives are to be maximised. Bounds,
        integer variables, the reference point and the noise are BoTorch's. Single values are
        as noisy as it says; `evaluate` returns true ones. BoTorch computes both objectives at
        once: here each is a call of its own, so two of them cost twice the time.

        Args:
            test_problem: A `MultiObjectiveTestProblem` of BoTorch without constraints.
            slow: Which of its objectives is the slow one: 0, the first, or 1.
            tau: How many fast evaluations take the time of one slow one.
            names: A name for each dimension.

        Returns:
            A problem that also knows `evaluate(X)` and, where BoTorch does, `pareto_front(n)`.

        Raises:
            InvalidInputError: If it is no such problem, or another argument is wrong.
        """
        from tcsaea_torch.problems.botorch_adaptors import FromBotorch

        return FromBotorch(test_problem, slow=slow, tau=tau, names=names)

    @staticmethod
    def from_pymoo(
        problem: Any,
        *,
        slow: int = 1,
        tau: float = 5.0,
        names: Sequence[str] | None = None,
        ref_point: Any = None,
    ) -> "tcsaea_torch.problems.pymoo_adaptor.FromPymoo":
        """Make a problem of one of pymoo's with two objectives.

        Real and integer variables are taken over, those of mixed problems by their names. pymoo
        computes both objectives at once: here each is a call of its own.

        Args:
            problem: A pymoo `Problem`, elementwise or not, without constraints; or a name that
                pymoo's `get_problem` knows.
            slow: Which of its objectives is the slow one: 0, the first, or 1.
            tau: How many fast evaluations take the time of one slow one.
            names: A name for each dimension.
            ref_point: Reference point (fast, slow) of the hypervolume; pymoo has none.

        Returns:
            A problem that also knows `evaluate(X)` and, where pymoo does, `pareto_front(n)`.

        Raises:
            InvalidInputError: If it is no such problem, or another argument is wrong.
            MissingDependencyError: If pymoo is not installed.
        """
        from tcsaea_torch.problems.pymoo_adaptor import FromPymoo

        return FromPymoo(problem, slow=slow, tau=tau, names=names, ref_point=ref_point)

    def to_botorch(
        self, *, negate: bool = False
    ) -> "botorch.test_functions.base.MultiObjectiveTestProblem":
        """Return the problem as a test problem for BoTorch's loops.

        Its values are minimised, whatever the directions here: an objective that is maximised
        changes its sign. With `negate` all are to be maximised, as BoTorch's acquisition
        functions want them. The reference point goes along; it must have been given. Values of
        a problem that is no torch code have no gradients.

        Args:
            negate: Whether values and reference point change their signs.

        Raises:
            InvalidInputError: If the problem has no reference point.
        """
        from tcsaea_torch.problems.botorch_adaptors import ToBotorch

        return ToBotorch(self, negate=negate)


def call_objective(function: Callable[[Any], Any], X: Tensor, *, vectorized: bool) -> list[Any]:
    """Call an objective on `n x d` points in user's units and return n values, unchecked.

    It needs nothing but the function, so that it can run in another process. What a
    value is worth is for the caller to judge, by `check_value`.

    Args:
        function: The objective.
        X: Points in user's units, float64.
        vectorized: Whether the function takes all points at once.

    Raises:
        InvalidInputError: If a vectorised function does not return n numbers.
    """
    if not vectorized:
        return [function(x) for x in X.cpu().numpy()]
    values = function(X)
    try:
        array = as_float_tensor("values", values)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"an objective must return {len(X)} numbers for {len(X)} points, got {describe(values)}"
        ) from error
    if tuple(array.shape) not in ((len(X),), (len(X), 1)):
        raise InvalidInputError(
            f"an objective must return {len(X)} values for {len(X)} points, "
            f"got shape {tuple(array.shape)}"
        )
    return array.flatten().tolist()


def check_value(objective: Objective, value: Any) -> float:
    """Return what an objective gave as a finite float.

    Raises:
        InvalidInputError: If it is not one finite real number.
    """
    number = as_scalar(value)
    if number is None:
        raise InvalidInputError(f"{objective} must be one real number, got {describe(value)}")
    return check_real(str(objective), number)


def snap(
    U: Float[Tensor, "*batch d"], grid: Float[Tensor, " d"] | None
) -> Float[Tensor, "*batch d"]:
    """Move points of the unit cube to where they will be run.

    Args:
        U: Points in the unit cube.
        grid: `Problem.grid`: steps per dimension, inf if continuous, 0 if fixed.
    """
    if grid is None:
        return U
    steps = grid.to(U)
    finite = torch.where(steps.isinf(), 1.0, steps)
    stepped = (U * finite).round() / finite.clamp_min(1.0)
    return torch.where(steps.isinf(), U, stepped)
