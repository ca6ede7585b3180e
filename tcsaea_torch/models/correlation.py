"""Correlation matrices of a fit, and derivatives with respect to their parameters.

A fit evaluates R at the same points many times, and needs sums over G_ij dR_ij each time.
What depends on the points alone is made once, here. Rows that do not exist are
uncorrelated with all others. The diagonal of R is for the caller to write.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.types import Bool, Float, Int, Tensor

Backward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""W: b x n x n, symmetric, overwritten -> sum_ij W_ij dR_ij / 2 by theta, and by p if free."""

_FAR = 1e6
"""Added to the squared distances of a row that does not exist: exp(-1e6) is exactly 0."""
_BLOCK = 2**17
"""Numbers in a block of a table that is too large to be kept: 1 MB."""
_KEPT = {"cpu": 2**24, "cuda": 2**28}
"""Numbers in a table that is kept for the whole fit, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Squared(Indexed):
    """p = 2, by GEMM: sum_k theta_k (a_k - b_k)^2 = |a|^2 + |b|^2 - 2ab in scaled units."""

    X1: Float[Tensor, "b n d1"]
    """Points, and a column of ones."""
    far: Float[Tensor, "b n 1"]
    """0 where the row exists."""

    @classmethod
    def of(cls, X: Float[Tensor, "b n d"], live: Bool[Tensor, "b n"]) -> "Squared":
        """Prepare for points X, of which `live` exist."""
        return cls(
            X1=torch.cat([X, torch.ones_like(X[..., :1])], dim=-1),
            far=_FAR * (~live).to(X).unsqueeze(-1),
        )

    @property
    def numbers(self) -> int:
        """Numbers in R, for one model."""
        return self.X1.shape[-2] ** 2

    def correlate(self, theta: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b n n"], Backward]:
        """Return R, and what turns dL/dR into derivatives of L."""
        R = self._negative_distances(theta).exp_()
        return R, partial(self._backward, R)

    def _negative_distances(self, theta: Tensor) -> Tensor:
        """Return -sum_k theta_k (x_ik - x_jk)^2."""
        X, ones = self.X1[..., :-1], self.X1[..., -1:]
        A = X * theta.sqrt().unsqueeze(-2)
        norms = A.square().sum(dim=-1, keepdim=True) + self.far
        # One GEMM gives the negative distances. Rounding must not make them positive.
        left = torch.cat([2.0 * A, -norms, -ones], dim=-1)
        right = torch.cat([A, ones, norms], dim=-1)
        return (left @ right.mT).clamp_(max=0.0)

    def _backward(self, slope: Tensor, W: Tensor) -> tuple[Tensor, None]:
        """Return the derivatives, given -dR/d(distance)."""
        # As G = W * slope is symmetric, -sum_ij G_ij (x_ik - x_jk)^2 / 2 is
        # sum_i x_ik ((GX)_ik - g_i x_ik) with g = G1.
        X = self.X1[..., :-1]
        G = W.mul_(slope)
        G.diagonal(dim1=-2, dim2=-1).zero_()  # zero distances: no share, no rounding error
        GX1 = G @ self.X1
        return (X * (GX1[..., :-1] - GX1[..., -1:] * X)).sum(dim=-2), None


@dataclass(frozen=True, kw_only=True, eq=False)
class Matern52(Squared):
    """Matern-5/2 of the same squared distances r^2: (1 + s + s^2 / 3) exp(-s), s = sqrt(5) r."""

    def correlate(self, theta: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b n n"], Backward]:
        """Return R, and what turns dL/dR into derivatives of L."""
        s = self._negative_distances(theta).mul_(-5.0).sqrt_()
        decay = (-s).exp_()
        slope = (1.0 + s).mul_(decay)  # dR / d(r^2) is -5/6 of it
        R = torch.addcmul(slope, s.square_(), decay, value=1.0 / 3.0)
        return R, partial(self._backward, slope.mul_(5.0 / 6.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Powered:
    """Any powers, on the pairs i > j only: |d|^p = exp(p ln |d|), and the logarithms stay."""

    X: Float[Tensor, "b n d"]
    """Points."""
    i: Int[Tensor, " k"]
    """First row of each pair."""
    j: Int[Tensor, " k"]
    """Second row of each pair."""
    live: Float[Tensor, "b k"]
    """1 where both rows exist, else 0."""
    logarithms: Float[Tensor, "b d k"] | None
    """ln |x_i - x_j| in each dimension; None where the table would be too large."""

    @classmethod
    def of(cls, X: Float[Tensor, "b n d"], live: Bool[Tensor, "b n"]) -> "Powered":
        """Prepare for points X, of which `live` exist."""
        b, n, d = X.shape
        i, j = torch.tril_indices(n, n, -1, device=X.device)
        both = (live[..., i] & live[..., j]).to(X)
        table = cls(X=X, i=i, j=j, live=both, logarithms=None)
        if b * len(i) * d > _KEPT["cpu" if X.device.type == "cpu" else "cuda"]:
            return table
        return replace(table, logarithms=table._logarithms(slice(None)))

    def __getitem__(self, index: Tensor | slice) -> "Powered":
        """Return the selected batch members."""
        kept = None if self.logarithms is None else self.logarithms[index]
        return replace(self, X=self.X[index], live=self.live[index], logarithms=kept)

    @property
    def numbers(self) -> int:
        """Numbers in the table of pairs, or in R, for one model."""
        n, d = self.X.shape[-2:]
        return max(n * n, len(self.i) * d)

    def correlate(
        self, theta: Float[Tensor, "b d"], p: Float[Tensor, "b d"]
    ) -> tuple[Float[Tensor, "b n n"], Backward]:
        """Return R, of which the lower triangle is filled, and its gradient; see `Squared`."""
        b, n, _ = self.X.shape
        p, row = p.unsqueeze(-1), theta.unsqueeze(-2)
        blocks = self._blocks()
        r = self.live.new_empty(self.live.shape)
        powers = r
        for block in blocks:
            powers = (p * self._logarithms(block)).exp_()
            r[..., block] = (row @ powers).squeeze(-2)
        r.neg_().exp_().mul_(self.live)
        places = (self.i * n + self.j).expand(b, -1)
        R = r.new_zeros(b, n * n).scatter_(-1, places, r).view(b, n, n)

        def backward(W: Tensor) -> tuple[Tensor, Tensor]:
            g = W.reshape(b, n * n).gather(-1, places).mul_(r).unsqueeze(-1)
            d_theta, d_p = torch.zeros_like(theta), torch.zeros_like(theta)
            for block in blocks:
                logarithms = self._logarithms(block)
                # A table of one block is still at hand.
                terms = powers if len(blocks) == 1 else (p * logarithms).exp_()
                d_theta -= (terms @ g[..., block, :]).squeeze(-1)
                d_p -= (terms.mul_(logarithms) @ g[..., block, :]).squeeze(-1)
            return d_theta, d_p.mul_(theta)

        return R, backward

    def _blocks(self) -> list[slice]:
        """Return slices of the pairs: all at once if their table is kept."""
        b, k = self.live.shape
        whole = self.logarithms is not None
        size = max(1, k if whole else _BLOCK // (b * self.X.shape[-1]))
        return [slice(start, start + size) for start in range(0, k, size)] or [slice(0)]

    def _logarithms(self, block: slice) -> Tensor:
        if self.logarithms is not None:
            return self.logarithms[..., block]
        X = self.X.mT
        difference = X[..., self.i[block]] - X[..., self.j[block]]
        # At distance 0 the power vanishes with any finite logarithm.
        return difference.abs_().clamp_min_(torch.finfo(difference.dtype).tiny).log_()


Correlation = Squared | Matern52 | Powered
