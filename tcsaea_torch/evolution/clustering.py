"""Clusters of points: k-means [Lloyd1982], batched, without host synchronisation.

[Arthur2007] D. Arthur, S. Vassilvitskii. k-means++: the advantages of careful seeding.
SODA 2007.
[Lloyd1982] S. P. Lloyd. Least squares quantization in PCM. IEEE Trans. Inf. Theory 28(2),
1982.
"""

import torch

from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor

_TIE = 1.0 + 1e-9
"""Distances of a point to centres that differ by less than this factor are equal."""


def kmeans(
    points: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    k: Int[Tensor, "*batch"],
    k_max: int,
    u: Float[Tensor, "*batch n"],
    *,
    spread: bool = True,
    n_iterations: int = 10,
) -> tuple[Int[Tensor, "*batch n"], Float[Tensor, "*batch q m"]]:
    """Divide the living points of each batch member into k clusters.

    There are fewer if fewer points are distinct. A cluster that loses all its points keeps
    its centre.

    Args:
        points: What to cluster; anything finite where not alive.
        alive: Points that take part.
        k: Wanted number of clusters of each batch member.
        k_max: Room for clusters, at least the largest k.
        u: Uniform numbers that choose the points at which clusters start.
        spread: Whether these are far from each other, see `spread_starts`, or any points,
            those with the largest numbers: cheaper where k is large.
        n_iterations: How often centres move to the means of their clusters.

    Returns:
        The cluster of each point, the nearest centre (the first of equally near ones), and
        q = min(k_max, n) centres. Labels of dead points mean nothing, nor do centres
        beyond the number of clusters.
    """
    points = torch.where(alive.unsqueeze(-1), points, 0.0)
    if spread:
        starts, exists = spread_starts(points, alive, min(k_max, points.shape[-2]), u)
    else:
        starts = (-u).masked_fill(~alive, torch.inf).argsort(dim=-1)[..., :k_max]
        exists = alive.gather(-1, starts)
    centres = take_rows(points, starts)
    index = torch.arange(starts.shape[-1], device=points.device)
    exists = exists & (index < k.unsqueeze(-1))
    for _ in range(n_iterations):
        is_member = (_nearest(points, centres, exists).unsqueeze(-1) == index) & alive[..., None]
        members = is_member.to(points.dtype)
        size = members.sum(dim=-2).unsqueeze(-1)
        mean = (members.mT @ points) / size.clamp_min(1.0)
        centres = torch.where(size > 0, mean, centres)
    return _nearest(points, centres, exists), centres


def spread_starts(
    points: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    q: int,
    u: Float[Tensor, "*batch n"],
) -> tuple[Int[Tensor, "*batch q"], Bool[Tensor, "*batch q"]]:
    """Choose distinct points far from each other, in the manner of k-means++ [Arthur2007].

    The next one is the smallest of -ln(u) / w, with w the squared distance to the nearest
    one so far: of independent numbers, it is i with probability w_i / sum w. Here each
    point has one number for all rounds, so that no sums and few numbers are needed.

    Args:
        points: Points to choose from.
        alive: Which of them take part.
        q: How many to choose.
        u: A uniform number for each point.

    Returns:
        Their indices, and which of them exist: as many as there are distinct points.
    """
    patience = -u.log()
    weight = alive.to(points.dtype)
    found, exists = [], []
    for j in range(q):
        # A weight of 0 makes it inf.
        chosen = (patience / weight).argmin(dim=-1, keepdim=True)
        found.append(chosen)
        exists.append(weight.gather(-1, chosen) > 0)
        distance = (points - take_rows(points, chosen)).square().sum(dim=-1)
        weight = torch.where(alive, distance, 0.0) if j == 0 else torch.minimum(weight, distance)
    return torch.cat(found, dim=-1), torch.cat(exists, dim=-1)


def _nearest(points: Tensor, centres: Tensor, exists: Tensor) -> Tensor:
    """Return the first of the centres at the smallest distance."""
    distance = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
    distance = distance.masked_fill(~exists.unsqueeze(-2), torch.inf)
    # Rounding must not decide between centres at equal distances, as on a lattice.
    least = distance.amin(dim=-1, keepdim=True)
    return (distance <= least * _TIE).to(torch.uint8).argmax(dim=-1)
