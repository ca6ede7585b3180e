"""Transfer of hyper-parameters from the fast to the slow surrogate, as in T-SAEA [Wang2020b].

Variables that matter to both objectives are found by a filter: a binary particle swarm
looks for the subset S of variables that minimises

    -(1 - c) Rel(S) + c Red(S)

with Rel(S) the distance correlation [Szekely2007] of the vector X_S with both objectives,
and Red(S) the mean distance correlation of two variables of S (0 for a single one). The
slow surrogate's theta of these variables then moves towards the fast one's.

[Wang2020b] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning for Gaussian process
assisted evolutionary bi-objective optimization for objectives with different evaluation
times. GECCO 2020.
[Szekely2007] G. J. Szekely, M. L. Rizzo, N. K. Bakirov. Measuring and testing dependence
by correlation of distances. Annals of Statistics 35(6), 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_int, check_real, keep_checked

_EMPTY_COST = 100.0
"""Cost of the empty set."""

_SAME_COST = 1e-5
"""Costs nearer than this are equal: rounding must not decide where a swarm goes."""

_N_BLOCKS = 8
"""Tables of pairs are kept by blocks of rows, each pair of blocks once."""

_PART = {"cpu": 2**18, "cuda": 2**27}
"""Numbers in a table of distances: what stays in a CPU's cache, or fills a GPU."""


@dataclass(frozen=True, kw_only=True)
class SwarmConfig:
    """The binary particle swarm that looks for a subset of variables.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    n_particles: int = 20
    """Subsets that are looked at together."""
    n_iterations: int = 30
    """Moves of each."""
    inertia: float = 1.05
    """w: how much of its velocity a particle keeps."""
    attraction: float = 2.0
    """c1 = c2: pull of a particle's own best place and of the swarm's."""
    max_speed: float = 0.1
    """Largest move in each dimension, within [0, 1]."""
    threshold: float = 0.5
    """A variable is in the subset where its coordinate is above this."""
    redundancy_weight: float = 0.2
    """c: weight of the redundancy; the relevance has 1 - c."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_particles", minimum=1)
        keep_checked(self, check_int, "n_iterations", minimum=0)
        keep_checked(self, check_real, "inertia", minimum=0.0)
        keep_checked(self, check_real, "attraction", minimum=0.0)
        keep_checked(self, check_real, "max_speed", minimum=0.0, maximum=1.0)
        keep_checked(self, check_real, "threshold", minimum=0.0, maximum=1.0)
        keep_checked(self, check_real, "redundancy_weight", minimum=0.0, maximum=1.0)

    @property
    def n_draws(self) -> int:
        """Uniform numbers that each particle needs for each variable."""
        return 1 + 2 * self.n_iterations


# -------------------------------------------------------------- distance correlation


def distance_correlation(
    X: Float[Tensor, "*#batch n p"],
    Y: Float[Tensor, "*#batch n q"],
    live: Bool[Tensor, "*#batch n"],
) -> Float[Tensor, "*batch"]:
    """Return the sample distance correlation of two random vectors.

    It lies in [0, 1]; it is 1 for a linear map that keeps angles, and 0 if one of the
    vectors is constant.

    Args:
        X: Samples of one vector, p components jointly.
        Y: Samples of the other.
        live: Samples that count.
    """
    A, B = centred_distances(X, live), centred_distances(Y, live)
    covariance = (A * B).sum(dim=(-2, -1))
    return _ratio(covariance, A.square().sum(dim=(-2, -1)), B.square().sum(dim=(-2, -1)))


def centred_distances(
    X: Float[Tensor, "*batch n p"], live: Bool[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch n n"]:
    """Return the doubly centred distances between samples, in units of the largest one.

    Rows and columns of living samples have mean 0; those of dead samples are 0.
    """
    X = _standard(X, live)
    pairs = (live.unsqueeze(-1) & live.unsqueeze(-2)).to(X)
    # The other mode subtracts products, which loses the small distances.
    table = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist") * pairs
    n = live.sum(dim=-1).clamp_min(1)[..., None, None]
    means = table.sum(dim=-1, keepdim=True) / n
    return (table - means - means.mT + means.sum(dim=-2, keepdim=True) / n) * pairs


def _standard(X: Tensor, live: Tensor) -> Tensor:
    """Centre samples and divide them by the largest entry, so that squares stay finite."""
    mask = live.unsqueeze(-1)
    X = torch.where(mask, X, 0.0)
    largest = X.abs().amax(dim=(-2, -1), keepdim=True)
    X = X / torch.where(largest > 0, largest, 1.0)
    n = mask.sum(dim=-2, keepdim=True).clamp_min(1)
    X = torch.where(mask, X - X.sum(dim=-2, keepdim=True) / n, 0.0)
    largest = X.abs().amax(dim=(-2, -1), keepdim=True)
    return X / torch.where(largest > 0, largest, 1.0)


def _ratio(covariance: Tensor, variance_x: Tensor, variance_y: Tensor) -> Tensor:
    """Return the distance correlation from (multiples of) squared dCov and dVar."""
    scale = variance_x.clamp_min(0.0).sqrt() * variance_y.clamp_min(0.0).sqrt()
    ratio = covariance.clamp_min(0.0) / torch.where(scale > 0, scale, 1.0)
    return torch.where(scale > 0, ratio, 0.0).sqrt()


# -------------------------------------------------------------- choosing variables


def select_variables(
    X: Float[Tensor, "b n d"],
    Y: Float[Tensor, "b n m"],
    live: Bool[Tensor, "b n"],
    u: Float[Tensor, "b draws particles d"],
    config: SwarmConfig,
) -> Bool[Tensor, "b d"]:
    """Return the variables that matter to the objectives and repeat each other little.

    Args:
        X: Points of the unit cube.
        Y: Their objective values.
        live: Points that count.
        u: Uniform numbers, `config.n_draws` for each particle and variable.
        config: The swarm.
    """
    limit = _PART["cpu" if X.device.type == "cpu" else "cuda"]
    numbers = max(u.shape[-2:]) * X.shape[1] ** 2
    size = max(1, limit // max(1, numbers))
    parts = zip(*(torch.split(t, size) for t in (X, Y, live, u)), strict=True)
    return torch.cat([_swarm(*part, config=config) for part in parts])


def _swarm(X: Tensor, Y: Tensor, live: Tensor, u: Tensor, *, config: SwarmConfig) -> Tensor:
    """Do what `select_variables` does, for runs whose tables are made together."""
    cost = _Cost.of(X, Y, live, config)
    place = u[:, 0]
    velocity = torch.zeros_like(place)
    found = cost(place > config.threshold)
    best_place, best = place, found  # of each particle
    leader, lowest = _first_lowest(place, found)  # of the swarm
    for t in range(config.n_iterations):
        own, common = u[:, 1 + 2 * t], u[:, 2 + 2 * t]
        pull = own * (best_place - place) + common * (leader - place)
        velocity = config.inertia * velocity + config.attraction * pull
        velocity = velocity.clamp(-config.max_speed, config.max_speed)
        place = (place + velocity).clamp(0.0, 1.0)

        found = cost(place > config.threshold)
        is_better = found < best - _SAME_COST
        best_place = torch.where(is_better.unsqueeze(-1), place, best_place)
        best = torch.where(is_better, found, best)
        rival, rival_cost = _first_lowest(best_place, best)
        is_better = rival_cost < lowest - _SAME_COST
        leader = torch.where(is_better.unsqueeze(-1), rival, leader)
        lowest = torch.where(is_better, rival_cost, lowest)
    return leader.squeeze(1) > config.threshold


def _first_lowest(
    places: Float[Tensor, "b particles d"], costs: Float[Tensor, "b particles"]
) -> tuple[Float[Tensor, "b 1 d"], Float[Tensor, "b 1"]]:
    """Return the place of lowest cost, the first of equals, and its cost."""
    is_lowest = costs <= costs.amin(dim=1, keepdim=True) + _SAME_COST
    first = is_lowest.to(torch.int8).argmax(dim=1, keepdim=True)
    index = first.unsqueeze(-1).expand(-1, 1, places.shape[-1])
    return places.gather(1, index), costs.gather(1, first)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    """Tables over pairs of rows, by blocks of rows; each pair of blocks is there once.

    They are in single precision: to rank subsets takes no more.
    """

    alive: Float[Tensor, "b 1 blocks rows"]
    """1 for rows that count, 0 for others and for padding."""
    first: Int[Tensor, " t"]
    """The block of rows of each of the t blocks of pairs."""
    second: Int[Tensor, " t"]
    """Its block of columns, not before the first."""

    @classmethod
    def of(cls, live: Bool[Tensor, "b n"]) -> "_Pairs":
        """Lay them out for these rows."""
        first, second = torch.triu_indices(_N_BLOCKS, _N_BLOCKS, device=live.device)
        return cls(alive=_by_blocks(live.float().unsqueeze(1)), first=first, second=second)

    @property
    def n(self) -> Float[Tensor, "b 1"]:
        """How many rows count, at least 1."""
        return self.alive.sum(dim=(-2, -1)).clamp_min(1.0)

    @cached_property
    def weights(self) -> Float[Tensor, " pairs"]:
        """How often each pair stands in the whole table."""
        weights = torch.where(self.first == self.second, 1.0, 2.0)
        return weights.to(self.alive).repeat_interleave(self.alive.shape[-1] ** 2)

    @cached_property
    def _blocks_of_rows(self) -> tuple[Tensor, Tensor]:
        """Which blocks of pairs have their rows, or columns only, in a block of rows."""
        block = torch.arange(_N_BLOCKS, device=self.first.device).unsqueeze(-1)
        columns = (block == self.second) & (self.first != self.second)
        return (block == self.first).to(self.alive), columns.to(self.alive)

    def combine(
        self, rows: Float[Tensor, "b k blocks rows"], columns: Float[Tensor, "b k blocks rows"]
    ) -> Float[Tensor, "b k pairs"]:
        """Return rows_i - columns_j for all pairs of rows that count, else 0."""
        alive = self._outer(self.alive, self.alive, torch.mul)
        return (self._outer(rows, columns, torch.sub).mul_(alive)).flatten(-3)

    def _outer(self, rows: Tensor, columns: Tensor, operation: Callable[..., Tensor]) -> Tensor:
        rows, columns = rows[..., self.first, :], columns[..., self.second, :]
        return operation(rows.unsqueeze(-1), columns.unsqueeze(-2))

    def row_sums(self, table: Float[Tensor, "b k pairs"]) -> Float[Tensor, "b k blocks rows"]:
        """Return the sums of each row of the whole tables."""
        m = self.alive.shape[-1]
        table = table.unflatten(-1, (len(self.first), m, m))
        rows, columns = self._blocks_of_rows
        return rows @ table.sum(dim=-1) + columns @ table.sum(dim=-2)

    def centred(self, table: Float[Tensor, "b k pairs"]) -> Float[Tensor, "b k pairs"]:
        """Subtract the means of rows and columns."""
        means = self.row_sums(table) / self.n[..., None, None]
        mean = means.sum(dim=(-2, -1), keepdim=True) / self.n[..., None, None]
        return table - self.combine(means - mean, -means)


def _by_blocks(columns: Float[Tensor, "b k n"]) -> Float[Tensor, "b k blocks rows"]:
    """Split rows into blocks, padded by zeros."""
    n = columns.shape[-1]
    m = -(-n // _N_BLOCKS)
    return torch.nn.functional.pad(columns, (0, _N_BLOCKS * m - n)).unflatten(-1, (_N_BLOCKS, m))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cost:
    """Cost of subsets of variables, for b data sets.

    Squared distances over a subset are sums over its variables, so those of all subsets
    are one product of their masks with a table. These distances need not be centred: the
    other factor of the covariance is, and the variance follows from the sums of rows.
    """

    pairs: _Pairs
    squares: Float[Tensor, "b d pairs"]
    """(x_k - x'_k)^2."""
    Y_centred: Float[Tensor, "b pairs 1"]
    """Centred distances of the objectives, times `pairs.weights`."""
    Y_variance: Float[Tensor, "b 1"]
    """Sum of their squares."""
    mean_squares: Float[Tensor, "b d"]
    """Mean over all pairs of each variable's squares."""
    redundancy: Float[Tensor, "b d d"]
    """Distance correlations between variables; 0 on the diagonal."""
    weight: float
    """c of the redundancy."""
    room: Float[Tensor, "b s pairs"]
    """Where distances over s subsets are written: to ask for memory would take longer."""

    @classmethod
    def of(cls, X: Tensor, Y: Tensor, live: Tensor, config: SwarmConfig) -> "_Cost":
        """Make the tables."""
        pairs = _Pairs.of(live)
        X, Y = (_by_blocks(_standard(Z, live).float().mT) for Z in (X, Y))
        differences = pairs.combine(X, X)
        A = pairs.centred(differences.abs())
        covariance = (A * pairs.weights) @ A.mT
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        redundancy = _ratio(covariance, variance.unsqueeze(-1), variance.unsqueeze(-2))
        B = pairs.combine(Y, Y).square().sum(dim=1, keepdim=True).sqrt()
        B = pairs.centred(B).squeeze(1)
        squares = differences.square_()
        return cls(
            pairs=pairs,
            squares=squares,
            Y_centred=(B * pairs.weights).unsqueeze(-1),
            Y_variance=(B.square() @ pairs.weights).unsqueeze(-1),
            mean_squares=(squares @ pairs.weights) / pairs.n.square(),
            redundancy=redundancy - redundancy.diagonal(dim1=-2, dim2=-1).diag_embed(),
            weight=config.redundancy_weight,
            room=squares.new_empty(len(X), config.n_particles, squares.shape[-1]),
        )

    def __call__(self, subsets: Bool[Tensor, "b s d"]) -> Float[Tensor, "b s"]:
        """Return the cost of each subset."""
        masks = subsets.to(self.squares)
        size = masks.sum(dim=-1)
        n_couples = size * (size - 1.0)
        redundancy = ((masks @ self.redundancy) * masks).sum(dim=-1) / n_couples.clamp_min(1.0)
        cost = -(1.0 - self.weight) * self.relevance(masks) + self.weight * redundancy
        return torch.where(size > 0, cost, _EMPTY_COST)

    def relevance(self, masks: Float[Tensor, "b s d"]) -> Float[Tensor, "b s"]:
        """Return the distance correlation of each subset with the objectives."""
        distances = torch.matmul(masks, self.squares, out=self.room).sqrt_()
        covariance = (distances @ self.Y_centred).squeeze(-1)
        n = self.pairs.n
        means = self.pairs.row_sums(distances).flatten(-2) / n.unsqueeze(-1)
        mean = means.sum(dim=-1) / n
        mean_square = (masks @ self.mean_squares.unsqueeze(-1)).squeeze(-1)
        variance = mean_square - 2.0 * means.square().sum(dim=-1) / n + mean.square()
        return _ratio(covariance, n.square() * variance, self.Y_variance)


# -------------------------------------------------------------- transfer


def blend(
    theta_slow: Float[Tensor, "b d"],
    theta_fast: Float[Tensor, "b d"],
    selected: Bool[Tensor, "b d"],
    weight: Float[Tensor, " b"],
) -> Float[Tensor, "b d"]:
    """Return a theta_s + (1 - a) theta_f for the selected variables, theta_s for the others.

    Args:
        theta_slow: The slow surrogate's theta.
        theta_fast: The fast one's, in the same units: inputs must be scaled alike.
        selected: Variables that matter to both.
        weight: a, see `adaptive_weight`.
    """
    a = weight.unsqueeze(-1)
    return torch.where(selected, a * theta_slow + (1.0 - a) * theta_fast, theta_slow)
