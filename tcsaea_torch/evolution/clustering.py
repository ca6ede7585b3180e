"""Clusters of points: Lloyd's k-means [Lloyd1982], batched, without host synchronisation.

[Lloyd1982] S. P. Lloyd. Least squares quantization in PCM. IEEE Trans. Inf. Theory 28(2),
1982.
"""

import torch

from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor

_TIE = 1.0 + 1e-9
"""Distances of a point to centres that differ by this factor are equal."""


def kmeans(
    points: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    k: Int[Tensor, "*batch"],
    k_max: int,
    u: Float[Tensor, "*batch n"],
    *,
    n_iterations: int = 10,
) -> tuple[Int[Tensor, "*batch n"], Float[Tensor, "*batch q m"]]:
    """Divide the living points of each batch member into at most k clusters.

    The clusters start at the living points with the smallest numbers `u`, so none of them
    is empty at first. One that loses all its points keeps its centre.

    Args:
        points: What to cluster; anything finite where not alive.
        alive: Points that take part.
        k: Wanted number of clusters of each batch member.
        k_max: Room for clusters, at least the largest k.
        u: Uniform numbers that choose the starts.
        n_iterations: Iterations of assigning points and moving centres.

    Returns:
        The cluster of each point, the nearest centre (the first of equally near ones), and
        q = min(k_max, n) centres. Labels of dead points mean nothing, nor do centres
        beyond the number of clusters.
    """
    order = u.masked_fill(~alive, torch.inf).argsort(dim=-1)[..., :k_max]
    points = torch.where(alive.unsqueeze(-1), points, 0.0)
    centres = take_rows(points, order)
    index = torch.arange(order.shape[-1], device=points.device)
    exists = (index < k.unsqueeze(-1)) & alive.gather(-1, order)
    for _ in range(n_iterations):
        is_member = (_nearest(points, centres, exists).unsqueeze(-1) == index) & alive[..., None]
        members = is_member.to(points.dtype)
        size = members.sum(dim=-2).unsqueeze(-1)
        mean = (members.mT @ points) / size.clamp_min(1.0)
        centres = torch.where(size > 0, mean, centres)
    return _nearest(points, centres, exists), centres


def _nearest(points: Tensor, centres: Tensor, exists: Tensor) -> Tensor:
    """Return the first of the centres at the smallest distance."""
    distance = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
    distance = distance.masked_fill(~exists.unsqueeze(-2), torch.inf)
    # Rounding must not decide between centres at equal distances, as on a lattice.
    least = distance.amin(dim=-1, keepdim=True)
    return (distance <= least * _TIE).to(torch.uint8).argmax(dim=-1)
