"""More rows for a conditioned surrogate, by an exact block extension of its factors.

With L the Cholesky factor of C, K the correlations between old and new rows, V = L^-1 K
and S = C22 - V'V, the new factor is

    [ L   0 ]
    [ V'  M ],   M = chol(S),

and G = L^-1 F and z = L^-1 y grow by the rows M^-1 (F2 - V'G) and M^-1 (y2 - V'z). The
trend follows from them: O(n^2 q) for q new rows, where factorising again is O(n^3).
"""

from dataclasses import dataclass, fields, replace

import torch

from tcsaea_torch.errors import FitError
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.likelihood import Factorisation, Standardised, absent_columns
from tcsaea_torch.models.surrogate import JITTERS, Surrogate, _is_exact
from tcsaea_torch.types import Float, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedSurrogate(Surrogate):
    """A surrogate that predicts many batches of points with one copy of its factor.

    `torch.linalg.solve_triangular` would copy L for each batch of points; and fantasies
    at the same points differ in their values, not in L.
    """

    shared_L: Float[Tensor, "*shared n n"] | None = None
    """L before it was expanded to the batch shape; None: it was not."""

    @classmethod
    def of(cls, surrogate: Surrogate) -> "SharedSurrogate":
        """Return a surrogate that predicts as the given one does."""
        return cls(**{f.name: getattr(surrogate, f.name) for f in fields(Surrogate)})

    def __getitem__(self, index: Tensor | int | slice) -> Surrogate:  # pyright: ignore
        """Return the selected batch members, which share nothing any more."""
        return Surrogate(**{f.name: getattr(self, f.name) for f in fields(Surrogate)})[index]

    @property
    def L(self) -> Tensor:
        """The factor, not expanded."""
        return self.factors.L if self.shared_L is None else self.shared_L

    def _whiten(self, k: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        u = (k @ self.factors.CiF - f).mT
        return solve_lower(self.L, k.mT), solve_lower(self.factors.FCiF_chol, u)


def solve_lower(
    L: Float[Tensor, "*#batch n n"], B: Float[Tensor, "*#batch n k"], *, adjoint: bool = False
) -> Float[Tensor, "*batch n k"]:
    """Return L^-1 B, or L'^-1 B with `adjoint`, without copies of L.

    Batch dimensions along which L has size 1 become columns of B.
    """
    batch = torch.broadcast_shapes(L.shape[:-2], B.shape[:-2])
    L = L.reshape((1,) * (len(batch) + 2 - L.ndim) + L.shape)
    shared = [i for i, size in enumerate(batch) if L.shape[i] == 1 and size != 1]
    own = [i for i in range(len(batch)) if i not in shared]
    order = [*own, len(batch), *shared, len(batch) + 1]
    B = B.expand(*batch, *B.shape[-2:]).permute(order)
    columns = B.reshape(*B.shape[: len(own) + 1], B.shape[len(own) + 1 :].numel())
    factor = L.squeeze(shared) if shared else L
    if adjoint:
        solved = torch.linalg.solve_triangular(factor.mT, columns, upper=True)
    else:
        solved = torch.linalg.solve_triangular(factor, columns, upper=False)
    return solved.reshape(B.shape).permute([order.index(i) for i in range(len(order))])


def extend(
    base: SharedSurrogate,
    X: Float[Tensor, "*points q d"],
    y: Float[Tensor, "*values q"],
    noise_var: Float[Tensor, "*noises q"],
    *,
    nugget: Float[Tensor, ""],
) -> SharedSurrogate:
    """Condition surrogates on q more rows; differentiable in X, y and noise_var.

    Hyper-parameters, sigma^2, scaling and the kind of trend stay; the trend's
    coefficients and their variance are estimated anew. The batch shapes of all arguments
    broadcast; members that differ in y only share one factor.

    Args:
        base: Surrogates of any batch shape.
        X: New points in the unit cube.
        y: Values, in the objective's units.
        noise_var: Their variances in squared units; inf where there is no row.
        nugget: What `condition` added to the diagonal, unless the hyper-parameters hold
            nuggets. The new rows also get the jitter of the old ones, and more where they
            need it.

    Raises:
        FitError: If even the largest jitter does not make C positive definite.
    """
    old, scaling = base.data, base.scaling
    points = torch.broadcast_shapes(base.variance.shape, X.shape[:-2], noise_var.shape[:-1])
    batch = torch.broadcast_shapes(points, y.shape[:-1])
    live = (noise_var < torch.inf).expand(*points, -1)
    X = torch.where(live.unsqueeze(-1), scaling.inputs(X), 0.0)
    F = base._basis(X) * live.unsqueeze(-1)
    unit = scaling.y_scale.unsqueeze(-1)
    noise = torch.where(live, noise_var, 0.0) / unit.square()
    values = torch.where(live, (y - scaling.y_shift.unsqueeze(-1)) / unit, 0.0)

    V, M, jitter = _new_blocks(base, X, noise, live, nugget)
    n, q = V.shape[-2:]
    upper = torch.cat([base.factors.L.expand(*points, n, n), V.new_zeros(*points, n, q)], dim=-1)
    L = torch.cat([upper, torch.cat([V.mT, M], dim=-1)], dim=-2)
    G, z = solve_lower(base.L, old.F), solve_lower(base.L, old.y.unsqueeze(-1))
    G = append_rows(G, solve_lower(M, F - V.mT @ G))
    z = append_rows(z, solve_lower(M, values.unsqueeze(-1) - V.mT @ z))

    data = Standardised(
        X=append_rows(old.X, X).expand(*batch, -1, -1),
        y=append_rows(old.y, values, dim=-1),
        F=append_rows(old.F, F).expand(*batch, -1, -1),
        noise=append_rows(old.noise, noise, dim=-1).expand(*batch, -1),
        live=append_rows(old.live, live, dim=-1).expand(*batch, -1),
        is_exact=base.data.is_exact.expand(batch),
    )
    data = replace(data, is_exact=_is_exact(data.F.detach(), data.y.detach()))
    FCiF = G.mT @ G
    FCiF = FCiF + torch.diag_embed(absent_columns(append_rows(old.F, F)))
    FCiF_chol, info = torch.linalg.cholesky_ex(FCiF)
    if bool((info > 0).any()):
        raise FitError("the trend cannot be estimated: F'C^-1F is not positive definite")
    beta = torch.cholesky_solve(G.mT @ z, FCiF_chol)
    whitened = z - G @ beta
    a = solve_lower(L, whitened, adjoint=True).squeeze(-1)
    factors = Factorisation(
        L=L.expand(*batch, -1, -1),
        failed=torch.zeros(batch, dtype=torch.bool, device=X.device),
        CiF=solve_lower(L, G, adjoint=True).expand(*batch, -1, -1),
        FCiF_chol=FCiF_chol.expand(*batch, -1, -1),
        beta=beta.squeeze(-1),
        a=torch.where(data.is_exact.unsqueeze(-1), 0.0, a),
        quadratic=whitened.square().sum(dim=(-2, -1)),
    )
    k = base.variance.ndim
    scaling, hyperparameters = (
        map_tensors(value, lambda t: t.expand(batch + t.shape[k:]))
        for value in (scaling, base.hyperparameters)
    )
    return SharedSurrogate(
        data=data,
        scaling=scaling,
        hyperparameters=hyperparameters,
        factors=factors,
        variance=base.variance.expand(batch),
        is_linear=base.is_linear.expand(batch),
        jitter=jitter.expand(batch),
        shared_L=L if points != batch else None,
    )


def _new_blocks(
    base: SharedSurrogate, X: Tensor, noise: Tensor, live: Tensor, nugget: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return V, M and the jitter of the new rows, for scaled points X: q x d."""
    hyper, alive, alive_before = base.hyperparameters, live.to(X), base.data.live.to(X)
    K = hyper.correlate(base.data.X, X)
    V = solve_lower(base.L, K * (alive_before.unsqueeze(-1) * alive.unsqueeze(-2)))
    R = hyper.correlate(X, X) * (alive.unsqueeze(-1) * alive.unsqueeze(-2))
    jitter = base.jitter
    nugget = nugget if hyper.nugget is None else hyper.nugget.unsqueeze(-1)
    diagonal = nugget + noise / base.variance.unsqueeze(-1) + jitter.unsqueeze(-1)
    eye = torch.eye(X.shape[-2], dtype=torch.bool, device=X.device)
    S = torch.where(eye, (1.0 + diagonal * alive).unsqueeze(-1), R) - V.mT @ V
    M, failed = _cholesky(S)
    for size in JITTERS:
        if not bool(failed.any()):
            break
        jitter = torch.where(failed, base.jitter + size, jitter)
        added = (jitter - base.jitter).unsqueeze(-1) * alive
        M, failed = _cholesky(S + torch.diag_embed(added))
    if bool(failed.any()):
        raise FitError(
            "the correlation matrix with the new rows is not positive definite, even with "
            f"{JITTERS[-1]:g} added to its diagonal"
        )
    return V, M, jitter


def _cholesky(S: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of S, and where it failed or holds nothing but rounding errors."""
    M, info = torch.linalg.cholesky_ex(S)
    squares = M.diagonal(dim1=-2, dim2=-1).square()
    return M, (info > 0) | (squares < 10 * torch.finfo(S.dtype).eps).any(dim=-1)


def append_rows(old: Tensor, new: Tensor, dim: int = -2) -> Tensor:
    """Concatenate along `dim`, with broadcast batch dimensions."""
    batch = torch.broadcast_shapes(old.shape[:dim], new.shape[:dim])
    return torch.cat([t.expand(*batch, *t.shape[dim:]) for t in (old, new)], dim=dim)
