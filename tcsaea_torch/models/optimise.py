"""Projected BFGS in a box, for many small problems at once.

Each pass evaluates every unfinished problem once, at its own trial point; whoever is
content with it takes a new quasi-Newton direction, and whoever is not halves its step.
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

import torch

from tcsaea_torch.types import Float, Int, Tensor
from tcsaea_torch.validation import check_int, check_real

_ARMIJO = 1e-4
_MAX_SHRINKS = 25

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
    check_every: int = 4
    """Passes between looks at who has finished: each look waits for the device."""

    def __post_init__(self) -> None:
        check_int("max_evaluations", self.max_evaluations, minimum=1)
        check_real("gradient_tolerance", self.gradient_tolerance, minimum=0.0)
        check_real("value_tolerance", self.value_tolerance, minimum=0.0)
        check_real("max_step", self.max_step, minimum=0.0, exclusive=True)
        check_int("check_every", self.check_every, minimum=1)


def minimise_in_box(
    objective: Objective,
    start: Float[Tensor, "b v"],
    lower: Float[Tensor, " v"],
    upper: Float[Tensor, " v"],
    options: BFGSOptions,
) -> tuple[Float[Tensor, "b v"], Float[Tensor, " b"], Int[Tensor, " b"]]:
    """Minimise b independent functions of v variables in one box.

    Args:
        objective: Values and gradients of the members whose indices it is given.
        start: Where each begins.
        lower: Lower bounds.
        upper: Upper bounds.
        options: Stopping rules.

    Returns:
        The best points, their values (inf where no finite one was found), and how
        often each member was evaluated.
    """
    x = start.clamp(lower, upper)
    members = torch.arange(len(x), device=x.device)
    best_x, best_f = x.clone(), x.new_full((len(x),), torch.inf)
    n_evaluations = torch.zeros_like(members)

    f, g = objective(x, members)
    search = _Search.begin(x, f, g, lower, upper, options)
    for n_passes in range(1, options.max_evaluations):
        if n_passes % options.check_every == 0:
            done = search.done
            best_x[members[done]], best_f[members[done]] = search.x[done], search.f[done]
            n_evaluations[members[done]] = n_passes
            if bool(done.all()):
                return best_x, best_f, n_evaluations
            members, search = members[~done], search.keep(~done)
        trial = (search.x + search.step.unsqueeze(-1) * search.direction).clamp(lower, upper)
        search = search.advance(trial, *objective(trial, members))
    best_x[members], best_f[members] = search.x, search.f
    n_evaluations[members] = options.max_evaluations
    return best_x, best_f, n_evaluations


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """State of the unfinished problems."""

    x: Float[Tensor, "b v"]
    f: Float[Tensor, " b"]
    g: Float[Tensor, "b v"]
    H: Float[Tensor, "b v v"]
    """Approximate inverse Hessian."""
    is_scaled: Tensor
    """Whether H has had its first update, which also sets its scale."""
    direction: Float[Tensor, "b v"]
    step: Float[Tensor, " b"]
    n_shrinks: Int[Tensor, " b"]
    done: Tensor
    lower: Float[Tensor, " v"]
    upper: Float[Tensor, " v"]
    options: BFGSOptions

    @classmethod
    def begin(
        cls, x: Tensor, f: Tensor, g: Tensor, lower: Tensor, upper: Tensor, options: BFGSOptions
    ) -> "_Search":
        b, v = x.shape
        projected, _ = _project(x, g, lower, upper)
        size = projected.abs().amax(dim=-1)
        # The first step changes the steepest variable by 1: gradients say nothing of scale.
        H = torch.eye(v, dtype=x.dtype, device=x.device).expand(b, v, v)
        H = H / size.clamp_min(1e-12)[:, None, None]
        start = cls(
            x=x, f=f, g=g, H=H, is_scaled=torch.zeros_like(f, dtype=torch.bool),
            direction=torch.zeros_like(x), step=torch.ones_like(f),
            n_shrinks=torch.zeros_like(f, dtype=torch.int64),
            done=(size <= options.gradient_tolerance) | f.isinf(),
            lower=lower, upper=upper, options=options,
        )  # fmt: skip
        return start._with(direction=start._direction(x, g, H))

    def _with(self, **changes: Tensor) -> "_Search":
        return _Search(**{**self.__dict__, **changes})

    def keep(self, mask: Tensor) -> "_Search":
        """Keep only the members in `mask`."""
        constant = ("lower", "upper", "options")
        return _Search(**{k: v if k in constant else v[mask] for k, v in self.__dict__.items()})

    def _direction(self, x: Tensor, g: Tensor, H: Tensor) -> Tensor:
        projected, free = _project(x, g, self.lower, self.upper)
        direction = -(H @ projected.unsqueeze(-1)).squeeze(-1) * free
        slope = (direction * projected).sum(dim=-1, keepdim=True)
        direction = torch.where(slope < 0, direction, -projected)
        longest = direction.abs().amax(dim=-1, keepdim=True)
        return direction * (self.options.max_step / longest.clamp_min(self.options.max_step))

    def advance(self, trial: Tensor, f: Tensor, g: Tensor) -> "_Search":
        """Take or refuse the trial points of all members."""
        s = trial - self.x
        slope = (self.g * s).sum(dim=-1)
        accept = (f <= self.f + _ARMIJO * slope) & (slope < 0) & ~self.done
        # A variable that is blocked before and after does not move: its gradient's change
        # tells of the others' influence on it, not of curvature along the step.
        _, was_free = _project(self.x, self.g, self.lower, self.upper)
        _, is_free = _project(trial, g, self.lower, self.upper)
        moves = (was_free + is_free).clamp_max(1.0)
        H, is_scaled = self._update(s, (g - self.g) * moves, accept)

        x = torch.where(accept.unsqueeze(-1), trial, self.x)
        g = torch.where(accept.unsqueeze(-1), g, self.g)
        projected, _ = _project(x, g, self.lower, self.upper)
        small_gradient = projected.abs().amax(dim=-1) <= self.options.gradient_tolerance
        gain = self.f - f
        small_gain = gain <= self.options.value_tolerance * self.f.abs().clamp_min(1.0)
        n_shrinks = torch.where(accept, 0, self.n_shrinks + 1)
        # Minimum of the parabola through f, its slope and the trial; halved where f is inf.
        curvature = f - self.f - slope
        tiny = torch.finfo(f.dtype).tiny
        parabola = torch.where(f.isinf(), 0.5, -0.5 * slope / curvature.clamp_min(tiny))
        step = torch.where(accept, 1.0, self.step * parabola.clamp(0.1, 0.5))
        direction = torch.where(accept.unsqueeze(-1), self._direction(x, g, H), self.direction)
        return self._with(
            x=x, f=torch.where(accept, f, self.f), g=g, H=H, is_scaled=is_scaled,
            direction=direction, step=step, n_shrinks=n_shrinks,
            done=self.done | small_gradient | (accept & small_gain) | (n_shrinks > _MAX_SHRINKS),
        )  # fmt: skip

    def _update(self, s: Tensor, y: Tensor, accept: Tensor) -> tuple[Tensor, Tensor]:
        """Update H by BFGS where the curvature along s is safely positive."""
        sy = (s * y).sum(dim=-1)
        yy = (y * y).sum(dim=-1)
        update = accept & (sy > 1e-10 * s.norm(dim=-1) * yy.sqrt())
        rho = torch.where(update, 1.0 / torch.where(update, sy, 1.0), 0.0)[:, None, None]
        first = update & ~self.is_scaled
        scale = torch.where(first, sy / torch.where(first, yy, 1.0), 1.0)[:, None, None]
        eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
        H = torch.where(first[:, None, None], scale * eye, self.H)
        Hy = H @ y.unsqueeze(-1)
        yHy = y.unsqueeze(-2) @ Hy
        column = s.unsqueeze(-1)
        cross = Hy @ column.mT
        # rho = 0 leaves H as it is.
        H = H - rho * (cross + cross.mT) + rho * (1.0 + rho * yHy) * (column @ column.mT)
        return H, self.is_scaled | update


def _project(x: Tensor, g: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient without components that point out of the box, and the free mask."""
    blocked = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
    return g.masked_fill(blocked, 0.0), (~blocked).to(g)
