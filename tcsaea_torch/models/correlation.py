"""Correlation matrices of a fit, and derivatives with respect to their parameters.

A fit evaluates R at the same points many times, and needs sums over G_ij dR_ij each time.
What depends on the points alone is made once, here. Rows that do not exist are
uncorrelated with all others. The diagonal of R is for the caller to write.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch

from tcsaea_torch.correlations import LOG2_E
from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.types import Bool, Float, Int, Tensor

Backward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""W: b x n x n, symmetric, overwritten -> sum_ij W_ij dR_ij / 2 by theta, and by p or by the
logarithms of the amplitudes where the kernel has them."""

_P = TypeVar("_P", bound="Pairs")

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
        R = self._negative_distances(theta * LOG2_E).exp2_()
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
        decay = (s * -LOG2_E).exp2_()
        slope = (1.0 + s).mul_(decay)  # dR / d(r^2) is -5/6 of it
        R = torch.addcmul(slope, s.square_(), decay, value=1.0 / 3.0)
        return R, partial(self._backward, slope.mul_(5.0 / 6.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """A table of numbers of the pairs i > j only, one for each dimension."""

    X: Float[Tensor, "b n d"]
    """Points."""
    i: Int[Tensor, " k"]
    """First row of each pair."""
    j: Int[Tensor, " k"]
    """Second row of each pair."""
    live: Float[Tensor, "b k"]
    """1 where both rows exist, else 0."""
    table: Float[Tensor, "b d k"] | None
    """The numbers; None where the table would be too large."""
    p: Float[Tensor, "b d"] | None
    """Powers that are in the table; None where they are not, or are 2."""

    @classmethod
    def of(
        cls: type[_P],
        X: Float[Tensor, "b n d"],
        live: Bool[Tensor, "b n"],
        p: Float[Tensor, "b d"] | None = None,
    ) -> _P:
        """Prepare for points X, of which `live` exist, and powers that are fixed."""
        b, n, d = X.shape
        i, j = torch.tril_indices(n, n, -1, device=X.device)
        both = (live[..., i] & live[..., j]).to(X)
        pairs = cls(X=X, i=i, j=j, live=both, table=None, p=p)
        if b * len(i) * d > _KEPT["cpu" if X.device.type == "cpu" else "cuda"]:
            return pairs
        return replace(pairs, table=pairs._entries(slice(None)))

    def __getitem__(self: _P, index: Tensor | slice) -> _P:
        """Return the selected batch members."""
        kept = None if self.table is None else self.table[index]
        p = None if self.p is None else self.p[index]
        return replace(self, X=self.X[index], live=self.live[index], table=kept, p=p)

    @property
    def numbers(self) -> int:
        """Numbers in the table of pairs, or in R, for one model."""
        n, d = self.X.shape[-2:]
        return max(n * n, len(self.i) * d)

    def _blocks(self) -> list[slice]:
        """Return slices of the pairs: all at once if their table is kept."""
        b, k = self.live.shape
        whole = self.table is not None
        size = max(1, k if whole else _BLOCK // (b * self.X.shape[-1]))
        return [slice(start, start + size) for start in range(0, k, size)] or [slice(0)]

    def _entries(self, block: slice) -> Tensor:
        """Return some pairs' columns of the table."""
        if self.table is not None:
            return self.table[..., block]
        X = self.X.mT
        return self._entry(X[..., self.i[block]] - X[..., self.j[block]])

    def _entry(self, difference: Tensor) -> Tensor:
        """Return the numbers that belong to these differences, which are overwritten."""
        raise NotImplementedError

    @property
    def _places(self) -> Int[Tensor, "b k"]:
        """Where the pairs are in a matrix with its rows one after the other."""
        return (self.i * self.X.shape[-2] + self.j).expand(len(self.X), -1)

    def _matrix(self, r: Float[Tensor, "b k"]) -> Float[Tensor, "b n n"]:
        """Return a matrix of which the lower triangle is filled."""
        b, n, _ = self.X.shape
        return r.new_zeros(b, n * n).scatter_(-1, self._places, r).view(b, n, n)

    def _of_pairs(self, W: Float[Tensor, "b n n"]) -> Float[Tensor, "b k"]:
        """Return the entries of a matrix that belong to the pairs."""
        return W.reshape(len(W), -1).gather(-1, self._places)


@dataclass(frozen=True, kw_only=True, eq=False)
class Powered(Pairs):
    """Any powers: |d|^p = 2^(p log2 |d|), and the logarithms stay."""

    def correlate(
        self, theta: Float[Tensor, "b d"], p: Float[Tensor, "b d"]
    ) -> tuple[Float[Tensor, "b n n"], Backward]:
        """Return R, of which the lower triangle is filled, and its gradient; see `Squared`."""
        p, row = p.unsqueeze(-1), theta.unsqueeze(-2) * LOG2_E
        blocks = self._blocks()
        r = self.live.new_empty(self.live.shape)
        powers = r
        for block in blocks:
            powers = (p * self._entries(block)).exp2_()
            r[..., block] = (row @ powers).squeeze(-2)
        r.neg_().exp2_().mul_(self.live)

        def backward(W: Tensor) -> tuple[Tensor, Tensor]:
            g = self._of_pairs(W).mul_(r).unsqueeze(-1)
            d_theta, d_p = torch.zeros_like(theta), torch.zeros_like(theta)
            for block in blocks:
                logarithms = self._entries(block)
                # A table of one block is still at hand.
                terms = powers if len(blocks) == 1 else (p * logarithms).exp2_()
                d_theta -= (terms @ g[..., block, :]).squeeze(-1)
                d_p -= (terms.mul_(logarithms) @ g[..., block, :]).squeeze(-1)
            return d_theta, d_p.mul_(theta / LOG2_E)

        return self._matrix(r), backward

    def _entry(self, difference: Tensor) -> Tensor:
        # At distance 0 the power vanishes with any finite logarithm.
        return difference.abs_().clamp_min_(torch.finfo(difference.dtype).tiny).log2_()


@dataclass(frozen=True, kw_only=True, eq=False)
class Additive(Pairs):
    """Sums of one- and two-dimensional terms; the differences' powers, which are fixed, stay.

    With t_k = a_k z_k, S = sum_k t_k and Q = sum_k t_k^2, R = (S + w (S^2 - Q) / 2) / U0,
    where U0 is the numerator at distance 0.
    """

    def correlate(
        self, theta: Float[Tensor, "b d"], amplitudes: Float[Tensor, "b d1"]
    ) -> tuple[Float[Tensor, "b n n"], Backward]:
        """Return R, of which the lower triangle is filled, and its gradient; see `Squared`."""
        a, w = amplitudes[..., :-1], amplitudes[..., -1:]
        total = a.sum(dim=-1, keepdim=True)
        largest = total + 0.5 * w * (total.square() - a.square().sum(dim=-1, keepdim=True))
        log_a, rate = a.log2().unsqueeze(-1), theta.unsqueeze(-1) * LOG2_E
        blocks, d = self._blocks(), self.X.shape[-1]
        n_pairs = min(blocks[0].stop, self.live.shape[-1])
        terms = self.live.new_empty(len(theta), d, n_pairs)

        def fill(block: slice) -> tuple[Tensor, Tensor]:
            """Return numbers of the table, and t_k of them."""
            entries = self._entries(block)
            out = terms[..., : entries.shape[-1]]
            for k in range(d):  # one dimension at a time stays in a CPU's cache
                torch.addcmul(log_a[:, k], rate[:, k], entries[:, k], value=-1.0, out=out[:, k])
                out[:, k].exp2_()
            return entries, out

        S, Q = (torch.zeros_like(self.live) for _ in range(2))
        for block in blocks:
            _, t = fill(block)
            for k in range(d):
                S[..., block].add_(t[:, k])
                Q[..., block].addcmul_(t[:, k], t[:, k])
        product = S.square().sub_(Q).mul_(0.5 * w)
        r = (S + product).div_(largest).mul_(self.live)

        def backward(W: Tensor) -> tuple[Tensor, Tensor]:
            g = self._of_pairs(W)
            in_r = (g * r).sum(dim=-1, keepdim=True)
            g = g.mul_(self.live).div_(largest)
            in_product = (g * product).sum(dim=-1, keepdim=True)
            # dU / d ln a_k = t_k (1 + w S) - w t_k^2, and -|d_k|^p times this by theta_k.
            linear, square = g * (1.0 + w * S), -w * g
            d_theta, d_a = torch.zeros_like(theta), torch.zeros_like(theta)
            for block in blocks:
                entries, t = fill(block) if len(blocks) > 1 else (self._entries(block), terms)
                for k in range(d):
                    share = torch.addcmul(linear[..., block], square[..., block], t[:, k])
                    share.mul_(t[:, k])
                    d_a[:, k] += share.sum(dim=-1)
                    d_theta[:, k] -= torch.linalg.vecdot(share, entries[:, k])
            d_a -= in_r * a * (1.0 + w * (total - a)) / largest
            d_w = in_product - in_r * (1.0 - total / largest)
            return d_theta, torch.cat([d_a, d_w], dim=-1)

        return self._matrix(r), backward

    def _entry(self, difference: Tensor) -> Tensor:
        if self.p is None:
            return difference.square_()
        return difference.abs_().pow_(self.p.unsqueeze(-1))


Correlation = Squared | Matern52 | Powered | Additive
