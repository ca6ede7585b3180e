"""Batches of candidates, chosen one after the other.

`greedy_ehvi` takes the candidate of largest expected hypervolume improvement, believes
that its values will be what is predicted, and goes on [Ginsbourger2010]. The predictions of
the others keep their means, and their covariances shrink by

    C <- C - c c' / c_j,   c = C[:, j]

`spread` takes points far from each other, whatever is expected of them.

[Ginsbourger2010] D. Ginsbourger, R. Le Riche, L. Carraro. Kriging is well-suited to
parallelize optimization. Computational Intelligence in Expensive Optimization Problems, 2010.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.acquisition.hypervolume import Strips, log_ehvi
from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor

SMALLEST_SD = 1e-6
"""Standard deviations are not taken to be smaller, in units of the front's extent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Front:
    """What candidates have to improve upon, in units of its own extent.

    Objectives are shifted and scaled so that differences between them mean something; EHVI
    in these units is EHVI but for a factor.
    """

    Y: Float[Tensor, "b n 2"]
    """Values, scaled."""
    alive: Bool[Tensor, "b n"]
    """Which of them count."""
    ref_point: Float[Tensor, "b 2"]
    """Reference point, scaled."""
    low: Float[Tensor, "b 1 2"]
    """What becomes 0."""
    extent: Float[Tensor, "b 1 2"]
    """What becomes 1."""
    lower_bound: Float[Tensor, "b 2"] | None = None
    """What no value falls below, scaled; None: nothing is known."""

    def scale(self, Y: Float[Tensor, "b k 2"]) -> Float[Tensor, "b k 2"]:
        """Bring values to the front's units."""
        return (Y - self.low) / self.extent

    def with_points(self, Y: Float[Tensor, "b k 2"], alive: Bool[Tensor, "b k"]) -> "Front":
        """Return the front with more points, given in its own units."""
        return Front(
            Y=torch.cat([self.Y, Y], dim=1),
            alive=torch.cat([self.alive, alive], dim=1),
            ref_point=self.ref_point,
            low=self.low,
            extent=self.extent,
            lower_bound=self.lower_bound,
        )

    def log_ehvi(
        self, mean: Float[Tensor, "b k 2"], variance: Float[Tensor, "b k 2"]
    ) -> Float[Tensor, "b k"]:
        """Return the logarithms of the EHVI of predictions in its own units."""
        sd = variance.clamp_min(0.0).sqrt().clamp_min(SMALLEST_SD)
        strips = Strips.between(self.Y, self.alive, self.ref_point)
        return log_ehvi(mean, sd, strips, self.lower_bound)


def greedy_ehvi(
    mean: Float[Tensor, "b k 2"],
    covariance: Float[Tensor, "b 2 k k"],
    free: Bool[Tensor, "b k"],
    front: Front,
    n: Int[Tensor, " b"],
    n_slots: int,
    bonus: Float[Tensor, "b k"] | None = None,
) -> tuple[Int[Tensor, "b s"], Bool[Tensor, "b s"]]:
    """Choose candidates by EHVI, one after the other.

    Args:
        mean: Predicted means, in the front's units.
        covariance: Of each objective between the candidates, in these units.
        free: Which candidates may be chosen.
        front: What is to be improved.
        n: How many each run takes.
        n_slots: Room for them, at least the largest n, and at least 1.
        bonus: Added to the logarithms of the EHVI, such as that of a probability.

    Returns:
        Indices of candidates in the order of choice, and which of them count.
    """
    b, k = free.shape
    members = torch.arange(b, device=mean.device)
    tiny, lowest = SMALLEST_SD**2, torch.finfo(mean.dtype).min / 4
    chosen, counts = [], []
    for j in range(min(n_slots, k)):
        variance = covariance.diagonal(dim1=-2, dim2=-1).mT
        score = front.log_ehvi(mean, variance)
        score = score if bonus is None else score + bonus
        # Finite, so that one that is free comes first even where nothing is expected.
        score = score.clamp_min(lowest).masked_fill(~free, -torch.inf)
        best = score.argmax(dim=1)
        counts_now = free[members, best] & (j < n)
        chosen.append(best)
        counts.append(counts_now)
        free = free & (torch.arange(k, device=mean.device) != best.unsqueeze(-1))
        front = front.with_points(mean[members, best].unsqueeze(1), counts_now.unsqueeze(1))
        c = covariance[members, :, :, best]  # b x 2 x k
        scale = c[members, :, best].clamp_min(tiny) + tiny
        covariance = covariance - c.unsqueeze(-1) * (c / scale.unsqueeze(-1)).unsqueeze(-2)
    return torch.stack(chosen, dim=1), torch.stack(counts, dim=1)


def spread(
    F: Float[Tensor, "b k m"],
    free: Bool[Tensor, "b k"],
    taken: Float[Tensor, "b t m"],
    is_taken: Bool[Tensor, "b t"],
    n: Int[Tensor, " b"],
    n_slots: int,
) -> tuple[Int[Tensor, "b s"], Bool[Tensor, "b s"]]:
    """Choose points far from those that are taken and from each other.

    Args:
        F: Points.
        free: Which may be chosen.
        taken: Points that they keep away from.
        is_taken: Which of these count.
        n: How many each run takes.
        n_slots: Room for them, at least 1.

    Returns:
        Indices in the order of choice, and which of them count.
    """
    k = free.shape[1]
    distance = torch.full_like(F[..., 0], torch.inf)
    if taken.shape[1]:
        distance = _distances(F, taken).masked_fill(~is_taken.unsqueeze(1), torch.inf).amin(dim=-1)
    chosen, counts = [], []
    for j in range(min(n_slots, k)):
        best = distance.masked_fill(~free, -1.0).argmax(dim=1, keepdim=True)
        chosen.append(best)
        counts.append(free.gather(1, best) & (j < n).unsqueeze(-1))
        free = free & (torch.arange(k, device=F.device) != best)
        distance = torch.minimum(distance, _distances(F, take_rows(F, best)).squeeze(-1))
    return torch.cat(chosen, dim=1), torch.cat(counts, dim=1)


def _distances(A: Float[Tensor, "b k m"], B: Float[Tensor, "b t m"]) -> Float[Tensor, "b k t"]:
    # By differences: by GEMM, small distances would be rounding errors.
    return torch.cdist(A, B, compute_mode="donot_use_mm_for_euclid_dist")
