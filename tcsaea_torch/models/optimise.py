"""Projected BFGS in a box, for many small problems at once.

Each pass evaluates every unfinished problem once, at its own trial point; whoever is
content with it takes a new quasi-Newton direction, and whoever is not shortens its step.
So no member waits for another's line search, and there is no inner loop.

Following Bertsekas' two-metric projection [Bertsekas1982], a direction uses the inverse
Hessian on the free variables only, and trial points are projected onto the box. The
inverse Hessian is dense: problems have at most a few hundred variables, and one rank-two
update costs far fewer tensor operations than the two loops of L-BFGS.

[Bertsekas1982] D. P. Bertsekas. Projected Newton methods for optimization problems with
simple constraints. SIAM J. Control Optim. 20(2), 1982.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_int, check_real

_ARMIJO = 1e-4
_MAX_SHRINKS = 25
_HOPE = 10.0
"""How much more than its slope along a full step promises a search may still gain."""

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(v: k x v, members: k) -> (values: k, gradients: k x v); inf where undefined."""


@dataclass(frozen=True, kw_only=True)
class BFGSOptions:
    """When to stop, and how far one step may go.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    max_evaluations: int = 150
    """Evaluations of each problem, at most."""
    gradient_tolerance: float = 1e-5
    """Stop where no component of the projected gradient is larger."""
    value_tolerance: float = 1e-9
    """Stop after a step that lowers the value by less than this, relative to max(|f|, 1)."""
    max_step: float = 3.0
    """Largest change of a variable in one step."""
    check_every: int | None = None
    """Passes between looks at who has finished. None: 1 on the CPU, and 4 elsewhere, where
    each look waits for the device."""

    def __post_init__(self) -> None:
        check_int("max_evaluations", self.max_evaluations, minimum=1)
        check_real("gradient_tolerance", self.gradient_tolerance, minimum=0.0)
        check_real("value_tolerance", self.value_tolerance, minimum=0.0)
        check_real("max_step", self.max_step, minimum=0.0, exclusive=True)
        if self.check_every is not None:
            check_int("check_every", self.check_every, minimum=1)


class Minimum(NamedTuple):
    """Where b minimisations ended."""

    x: Float[Tensor, "b v"]
    """The best points."""
    value: Float[Tensor, " b"]
    """Their values; inf where no finite one was found."""
    n_evaluations: Int[Tensor, " b"]
    """How often each member was evaluated."""


def minimise_in_box(
    objective: Objective,
    start: Float[Tensor, "b v"],
    lower: Float[Tensor, " v"],
    upper: Float[Tensor, " v"],
    options: BFGSOptions,
    *,
    n_rivals: int = 1,
) -> Minimum:
    """Minimise b functions of v variables in one box.

    Args:
        objective: Values and gradients of the members whose indices it is given. The
            indices are the same tensor again until members leave.
        start: Where each begins.
        lower: Lower bounds.
        upper: Upper bounds.
        options: Stopping rules.
        n_rivals: How many consecutive members seek the minimum of one function. When one of
            them has ended, those stop that have no hope of becoming better.
    """
    x = start.clamp(lower, upper)
    members = torch.arange(len(x), device=x.device)
    f, g = objective(x, members)
    search = _Search.begin(x, f, g, lower, upper, options)
    best_x, best_f = x.clone(), f.clone()
    n_evaluations = torch.full_like(members, options.max_evaluations)
    lead = f.new_full((len(x) // n_rivals,), torch.inf)
    check_every = options.check_every or (1 if x.device.type == "cpu" else 4)

    for n_passes in range(1, options.max_evaluations):
        if n_passes % check_every == 0:
            done = search.done
            if n_rivals > 1:
                ended = search.f.masked_fill(~done, torch.inf)
                lead.scatter_reduce_(0, members // n_rivals, ended, "amin")
                done = done | (search.promise() > lead[members // n_rivals])
            if bool(done.any()):
                index = members[done]
                best_x[index], best_f[index] = search.x[done], search.f[done]
                n_evaluations[index] = n_passes
                members, search = members[~done], search.keep(~done)
                if not len(members):
                    return Minimum(best_x, best_f, n_evaluations)
        trial = torch.addcmul(search.x, search.step.unsqueeze(-1), search.direction)
        trial = trial.clamp(lower, upper)
        search = search.advance(trial, *objective(trial, members))
    best_x[members], best_f[members] = search.x, search.f
    return Minimum(best_x, best_f, n_evaluations)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """State of the unfinished problems."""

    x: Float[Tensor, "b v"]
    f: Float[Tensor, " b"]
    g: Float[Tensor, "b v"]
    blocked: Bool[Tensor, "b v"]
    """Variables at a bound with a gradient that points out of the box."""
    H: Float[Tensor, "b v v"]
    """Approximate inverse Hessian."""
    is_scaled: Bool[Tensor, " b"]
    """Whether H has had its first update, which also sets its scale."""
    direction: Float[Tensor, "b v"]
    step: Float[Tensor, " b"]
    n_shrinks: Int[Tensor, " b"]
    done: Bool[Tensor, " b"]
    lower: Float[Tensor, " v"]
    upper: Float[Tensor, " v"]
    options: BFGSOptions

    @classmethod
    def begin(
        cls,
        x: Tensor,
        f: Tensor,
        g: Tensor,
        lower: Tensor,
        upper: Tensor,
        options: BFGSOptions,
    ) -> "_Search":
        b, v = x.shape
        blocked = _blocked(x, g, lower, upper)
        size = g.masked_fill(blocked, 0.0).abs().amax(dim=-1)
        # The first step changes the steepest variable by 1: gradients say nothing of scale.
        H = torch.eye(v, dtype=x.dtype, device=x.device).expand(b, v, v)
        H = H / size.clamp_min(1e-12)[:, None, None]
        return cls(
            x=x, f=f, g=g, blocked=blocked, H=H,
            is_scaled=torch.zeros_like(f, dtype=torch.bool),
            direction=_direction(g, blocked, H, options.max_step),
            step=torch.ones_like(f), n_shrinks=torch.zeros_like(f, dtype=torch.int64),
            done=(size <= options.gradient_tolerance) | f.isinf(),
            lower=lower, upper=upper, options=options,
        )  # fmt: skip

    def keep(self, mask: Tensor) -> "_Search":
        """Keep only the members in `mask`."""
        constant = ("lower", "upper", "options")
        return _Search(**{k: v if k in constant else v[mask] for k, v in self.__dict__.items()})

    def promise(self) -> Float[Tensor, " b"]:
        """Return a value that each search will hardly get below."""
        return self.f + _HOPE * (self.direction * self.g).sum(dim=-1)

    def advance(self, trial: Tensor, f: Tensor, g: Tensor) -> "_Search":
        """Take or refuse the trial points of all members."""
        options = self.options
        s, y = trial - self.x, g - self.g
        slope = (self.g * s).sum(dim=-1)
        accept = (f <= self.f + _ARMIJO * slope) & (slope < 0) & ~self.done
        taken = accept.unsqueeze(-1)
        blocked = _blocked(trial, g, self.lower, self.upper)
        # A variable that is blocked before and after does not move: its gradient's change
        # tells of the others' influence on it, not of curvature along the step.
        H, is_scaled = self._update(s, y.masked_fill(blocked & self.blocked, 0.0), accept)
        x, g = torch.where(taken, trial, self.x), torch.where(taken, g, self.g)
        blocked = torch.where(taken, blocked, self.blocked)

        steepest = g.masked_fill(blocked, 0.0).abs().amax(dim=-1)
        change = f - self.f
        small = accept & (-change <= options.value_tolerance * self.f.abs().clamp_min(1.0))
        n_shrinks = (self.n_shrinks + 1).masked_fill(accept, 0)
        # Minimum of the parabola through f, its slope and the trial; halved where f is inf.
        curvature = (change - slope).clamp_min(torch.finfo(f.dtype).tiny)
        shrink = (-0.5 * slope / curvature).clamp(0.1, 0.5).masked_fill(f.isinf(), 0.5)
        direction = _direction(g, blocked, H, options.max_step)
        # Not at once the full step again: where one was too long, the next is too.
        step = torch.where(accept, (2.0 * self.step).clamp_max(1.0), self.step * shrink)
        return _Search(
            x=x, f=torch.where(accept, f, self.f), g=g, blocked=blocked, H=H, is_scaled=is_scaled,
            direction=torch.where(taken, direction, self.direction),
            step=step, n_shrinks=n_shrinks,
            done=self.done | small | (steepest <= options.gradient_tolerance)
            | (n_shrinks > _MAX_SHRINKS),
            lower=self.lower, upper=self.upper, options=options,
        )  # fmt: skip

    def _update(self, s: Tensor, y: Tensor, accept: Tensor) -> tuple[Tensor, Tensor]:
        """Update H by BFGS where the curvature along s is safely positive."""
        sy, yy = (s * y).sum(dim=-1), (y * y).sum(dim=-1)
        update = accept & (sy > 1e-10 * (s.square().sum(dim=-1) * yy).sqrt())
        # rho = 0 leaves H as it is.
        rho = torch.where(update, 1.0 / sy, 0.0).unsqueeze(-1)
        # H is a multiple of I until its first update.
        first = update & ~self.is_scaled
        scale = torch.where(first, sy / (yy * self.H[:, 0, 0]), 1.0)
        H = self.H * scale[:, None, None]
        Hy = (H @ y.unsqueeze(-1)).squeeze(-1)
        size = 1.0 + rho * (y * Hy).sum(dim=-1, keepdim=True)
        left = torch.stack([s, Hy], dim=-1)
        right = torch.stack([rho * (size * s - Hy), -rho * s], dim=-2)
        return torch.baddbmm(H, left, right), self.is_scaled | update


def _blocked(x: Tensor, g: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return which variables are at a bound with a gradient that points out of the box."""
    return ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))


def _direction(g: Tensor, blocked: Tensor, H: Tensor, max_step: float) -> Tensor:
    """Return quasi-Newton directions of the free variables, of at most `max_step`."""
    projected = g.masked_fill(blocked, 0.0)
    newton = (H @ projected.unsqueeze(-1)).squeeze(-1).masked_fill(blocked, 0.0)
    descends = (newton * projected).sum(dim=-1, keepdim=True) > 0
    downhill = torch.where(descends, newton, projected)
    longest = downhill.abs().amax(dim=-1, keepdim=True).clamp_min(max_step)
    return downhill * (-max_step / longest)
