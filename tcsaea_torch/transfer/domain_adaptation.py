"""Transfer of instances between domains, as in Tr-SAEA [Wang2021]: HDA and co-training.

The values of the fast objective are the source, those of the slow one the target: two
samples of scalars. CORAL [Sun2016] scales them to the same spread. Transfer component
analysis (TCA) [Pan2011] then maps scalars v into a space in which the samples lie near
each other: v -> W'k(v), with k(v) the correlations exp(-(v - v_i)^2) to all samples, and
W the leading eigenvectors of

    (I + mu K L K)^-1 K H K,    L = ee',  e_i = 1 / n_s or -1 / n_t,   H = I - 11' / n

A fast value of a new point becomes a slow "instance" by the inverse map: a point x at
which the surrogate's slow mean, mapped, is where the fast value was mapped to.

[Wang2021] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning based surrogate
assisted evolutionary bi-objective optimization for objectives with different evaluation
times. Knowledge-Based Systems 227, 2021.
[Sun2016] B. Sun, J. Feng, K. Saenko. Return of frustratingly easy domain adaptation.
AAAI 2016.
[Pan2011] S. J. Pan, I. W. Tsang, J. T. Kwok, Q. Yang. Domain adaptation via transfer
component analysis. IEEE Trans. Neural Networks 22(2), 2011.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcsaea_torch.models.optimise import BFGSOptions, minimise_in_box
from tcsaea_torch.types import Bool, Float, Int, Tensor


def coral_factor(
    source: Float[Tensor, "*batch n"],
    target: Float[Tensor, "*batch n"],
    live: Bool[Tensor, "*batch n"],
) -> Float[Tensor, "*batch"]:
    """Return c = sqrt((var T + 1) / (var S + 1)), CORAL for scalars.

    Args:
        source: Samples of the source.
        target: Samples of the target.
        live: Samples that count.
    """
    return ((_variance(target, live) + 1.0) / (_variance(source, live) + 1.0)).sqrt()


def _variance(values: Tensor, live: Tensor) -> Tensor:
    """Return the sample variance; 0 of fewer than two samples."""
    n = live.sum(dim=-1)
    mean = torch.where(live, values, 0.0).sum(dim=-1) / n.clamp_min(1)
    centred = torch.where(live, values - mean.unsqueeze(-1), 0.0)
    return centred.square().sum(dim=-1) / (n - 1).clamp_min(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class TCA:
    """The map of transfer component analysis for scalars."""

    values: Float[Tensor, "*batch n"]
    """Samples of the source, then those of the target."""
    live: Bool[Tensor, "*batch n"]
    """Samples that count."""
    W: Float[Tensor, "*batch n k"]
    """Transfer components of length 1, the largest first; 0 where there are no more."""

    @classmethod
    def of(
        cls,
        source: Float[Tensor, "*batch s"],
        target: Float[Tensor, "*batch t"],
        is_source: Bool[Tensor, "*batch s"],
        is_target: Bool[Tensor, "*batch t"],
        *,
        n_components: int = 20,
        mu: float = 0.5,
    ) -> "TCA":
        """Find the components.

        Args:
            source: Samples of the source.
            target: Samples of the target.
            is_source: Samples of the source that count.
            is_target: Samples of the target that count.
            n_components: k, at most.
            mu: Weight of the distance between the samples' means.
        """
        values, live = torch.cat([source, target], dim=-1), torch.cat([is_source, is_target], -1)
        exists = live.to(values)
        K = _gaussian(values, values)
        K = K * exists.unsqueeze(-1) * exists.unsqueeze(-2)
        e = torch.cat([_shares(is_source, values), -_shares(is_target, values)], dim=-1)
        # K L K = qq' has rank one, so (I + mu qq')^-1/2 is I + factor qq' / |q|^2.
        q = (K @ e.unsqueeze(-1)).squeeze(-1)
        length = q.square().sum(dim=-1).clamp_min(torch.finfo(q.dtype).tiny)
        factor = ((1.0 + mu * length).rsqrt() - 1.0) / length
        half = factor[..., None, None] * q.unsqueeze(-1) * q.unsqueeze(-2)
        half = half + torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        n = exists.sum(dim=-1).clamp_min(1.0)[..., None, None]
        HK = K - exists.unsqueeze(-1) * K.sum(dim=-2, keepdim=True) / n
        # The same eigenvalues as those of the symmetric matrix with the root on both sides.
        root = HK @ half
        eigenvalues, vectors = torch.linalg.eigh(root.mT @ root)
        k = min(n_components, K.shape[-1])
        eigenvalues, vectors = eigenvalues[..., -k:].flip(-1), vectors[..., -k:].flip(-1)
        W = torch.nn.functional.normalize(half @ vectors, dim=-2) * exists.unsqueeze(-1)
        # Vectors of eigenvalues that are rounding errors are arbitrary, and map all to 0.
        smallest = n[..., 0] * torch.finfo(K.dtype).eps * eigenvalues[..., :1]
        return cls(values=values, live=live, W=W * (eigenvalues > smallest).unsqueeze(-2))

    def map(self, v: Float[Tensor, "*batch q"]) -> Float[Tensor, "*batch q k"]:
        """Return W'k(v) for each scalar."""
        return self._correlations(v) @ self.W

    def mismatch(
        self, v: Float[Tensor, "*batch q"], z: Float[Tensor, "*batch q k"]
    ) -> tuple[Float[Tensor, "*batch q"], Float[Tensor, "*batch q"]]:
        """Return |W'k(v) - z|^2 and its derivative with respect to v."""
        k = self._correlations(v)
        slope = -2.0 * (v.unsqueeze(-1) - self.values.unsqueeze(-2)) * k
        error = k @ self.W - z
        return error.square().sum(dim=-1), 2.0 * ((slope @ self.W) * error).sum(dim=-1)

    def _correlations(self, v: Tensor) -> Tensor:
        return _gaussian(v, self.values) * self.live.to(v).unsqueeze(-2)


def _gaussian(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(-1) - b.unsqueeze(-2)).square_().neg_().exp_()


def _shares(live: Tensor, like: Tensor) -> Tensor:
    """Return 1 / n for each of the n living samples."""
    return live.to(like) / live.sum(dim=-1, keepdim=True).clamp_min(1)


def find_points(
    mean: Callable[[Tensor], Tensor],
    tca: TCA,
    factor: Float[Tensor, " b"],
    z: Float[Tensor, "b q k"],
    start: Float[Tensor, "b q d"],
    options: BFGSOptions,
) -> Float[Tensor, "b q d"]:
    """Find points x of the unit cube that minimise |W'k(c mean(x)) - z|^2.

    Args:
        mean: The slow surrogate's means `b x q` of points `b x q x d`.
        tca: The map.
        factor: c, for the target.
        z: Where the fast values were mapped to.
        start: Where each search begins.
        options: When a search ends.
    """

    def objective(v: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        # All points, also those whose search is over: a part would need models of its own.
        X = start.flatten(0, 1).index_copy(0, members, v).view_as(start)
        with torch.enable_grad():
            X = X.requires_grad_()
            values = mean(X)
            (gradient,) = torch.autograd.grad(values.sum(), X)
        c = factor.unsqueeze(-1)
        value, slope = tca.mismatch(c * values.detach(), z)
        gradient = (c * slope).unsqueeze(-1) * gradient
        return value.flatten()[members], gradient.flatten(0, 1)[members]

    lower, upper = torch.zeros_like(start[0, 0]), torch.ones_like(start[0, 0])
    found = minimise_in_box(objective, start.flatten(0, 1), lower, upper, options)
    return found.x.view_as(start)


def most_certain(
    variance: Float[Tensor, "*batch n"],
    live: Bool[Tensor, "*batch n"],
    k: Int[Tensor, "*batch"],
) -> Bool[Tensor, "*batch n"]:
    """Return which k living points have the smallest variances: those that are labelled.

    Args:
        variance: Predictive variances of the model that labels.
        live: Points that exist.
        k: How many of each batch member; of fewer living points, all.
    """
    order = variance.masked_fill(~live, torch.inf).argsort(dim=-1, stable=True)
    rank = order.argsort(dim=-1)
    return (rank < k.unsqueeze(-1)) & live
