"""RVEA [Cheng2016], batched, with static shapes and without host synchronisation.

The population has one slot for each reference vector and a mask of the living, so a
generation is a fixed sequence of tensor operations for any number of independent runs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution.reference_vectors import adapt, span
from tcsaea_torch.evolution.selection import Niches, select_winners
from tcsaea_torch.evolution.variation import Draws, Variation, breed, recipes
from tcsaea_torch.problem import snap
from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import (
    check_bool,
    check_callable,
    check_float_tensor,
    check_instance,
    check_int,
    check_real,
    describe,
    keep_checked,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """Individuals of b independent runs; slot j holds the winner of vector j's niche."""

    X: Float[Tensor, "b r d"]
    """Points in the unit cube."""
    F: Float[Tensor, "b r m"]
    """Objective values, minimised."""
    alive: Bool[Tensor, "b r"]
    """Slots that hold an individual."""


@dataclass(frozen=True, kw_only=True)
class RVEAConfig:
    """Parameters of the search.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    n_generations: int = 20
    """Generations of offspring."""
    first_generation: int = 0
    """Number of the generation in which the start population is selected."""
    penalty_generations: int | None = None
    """t_max of the penalty (t / t_max)^alpha; None: the last generation."""
    alpha: float = 2.0
    """Exponent of the penalty."""
    penalty_factor: float = 1.0
    """Factor of the penalty; 1 / m takes out the number of objectives in the APD."""
    adaptation_frequency: float = 0.1
    """Vectors adapt every ceil(frequency * t_max) generations."""
    each_once: bool = True
    """Whether each living parent mates once, giving as many offspring as parents;
    otherwise there is an offspring for each vector, from parents drawn at random."""
    variation: Variation = field(default_factory=Variation)
    """Crossover and mutation."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_generations", "first_generation", minimum=0)
        if self.penalty_generations is not None:
            keep_checked(self, check_int, "penalty_generations", minimum=1)
        keep_checked(self, check_real, "alpha", "penalty_factor", minimum=0.0)
        limits = {"minimum": 0.0, "maximum": 1.0, "exclusive": True}
        keep_checked(self, check_real, "adaptation_frequency", **limits)
        check_bool("each_once", self.each_once)
        check_instance("variation", self.variation, Variation)

    @property
    def t_max(self) -> int:
        """The generation in which the penalty reaches 1."""
        if self.penalty_generations is not None:
            return self.penalty_generations
        return max(1, self.first_generation + self.n_generations)

    @property
    def last_penalty(self) -> float:
        """The penalty in the last generation."""
        return self.penalty_at(self.first_generation + self.n_generations)

    def penalty_at(self, t: int) -> float:
        """Return the penalty in a generation."""
        return self.penalty_factor * (t / self.t_max) ** self.alpha

    @property
    def adaptation_interval(self) -> int:
        """Generations between two adaptations of the vectors."""
        return max(1, math.ceil(self.adaptation_frequency * self.t_max))


def rvea(
    evaluate: Callable[[Tensor], Tensor],
    X: Float[Tensor, "b n d"],
    alive: Bool[Tensor, "b n"],
    initial_vectors: Float[Tensor, "r m"],
    draws: Draws,
    config: RVEAConfig,
    *,
    F: Float[Tensor, "b n m"] | None = None,
    vectors: Float[Tensor, "b r m"] | None = None,
    grid: Float[Tensor, " d"] | None = None,
) -> tuple[Population, Float[Tensor, "b r m"]]:
    """Search b problems at once.

    Nothing waits for the device, so a CUDA graph can capture a whole search, if it can
    capture `evaluate`.

    Args:
        evaluate: Objective values `b x k x m` of points `b x k x d`.
        X: Start population of any size, in the unit cube.
        alive: Which of its members take part.
        initial_vectors: Reference vectors before any adaptation.
        draws: Uniform numbers for `config.n_generations` generations of r offspring.
        config: Parameters.
        F: Values of the start population, such as measured ones; None: `evaluate(X)`.
        vectors: Adapted vectors to begin with; None means `initial_vectors`.
        grid: `Problem.grid`, so that integer variables are evaluated as integers.

    Returns:
        The last population and the vectors as last adapted.

    Raises:
        InvalidInputError: If types or shapes do not fit together.
    """
    _check_search(X, alive, initial_vectors, draws, config, vectors, grid)
    check_callable("evaluate", evaluate)
    b = X.shape[0]
    if vectors is None:
        vectors = initial_vectors.expand(b, *initial_vectors.shape)
    shape = (*X.shape[:2], initial_vectors.shape[1])
    if F is not None:
        check_float_tensor("F", F, f"of shape {shape}", shape)
    else:
        F = evaluate(X)
        if not isinstance(F, Tensor) or tuple(F.shape) != shape:
            raise InvalidInputError(
                f"evaluate must return values of shape {shape}, got {describe(F)}"
            )
    population = Population(X=X, F=F, alive=alive)
    t, niches = config.first_generation, Niches.of(vectors)
    population, niches = _select(population, niches, initial_vectors, t, config)
    for recipe in recipes(draws, config.n_generations, config.variation):
        t += 1
        offspring, lives = breed(
            population.X, population.alive, recipe, config.variation, each_once=config.each_once
        )
        offspring = snap(offspring, grid)
        merged = Population(
            X=torch.cat([population.X, offspring], dim=1),
            F=torch.cat([population.F, evaluate(offspring)], dim=1),
            alive=torch.cat([population.alive, lives], dim=1),
        )
        population, niches = _select(merged, niches, initial_vectors, t, config)
    return population, niches.vectors


def _check_search(
    X: Tensor,
    alive: Tensor,
    initial_vectors: Tensor,
    draws: Draws,
    config: RVEAConfig,
    vectors: Tensor | None,
    grid: Tensor | None,
) -> None:
    """Check types and shapes, without a look at values: that would wait for the device."""
    check_float_tensor("X", X, "b x n x d", (None, None, None))
    (b, n, d), is_mask = X.shape, isinstance(alive, Tensor) and alive.dtype == torch.bool
    if not is_mask or tuple(alive.shape) != (b, n):
        raise InvalidInputError(
            f"alive must be a bool tensor of shape {(b, n)}, got {describe(alive)}"
        )
    check_float_tensor("initial_vectors", initial_vectors, "r x m", (None, None))
    r, m = initial_vectors.shape
    check_instance("config", config, RVEAConfig)
    check_instance("draws", draws, Draws)
    _, g, n_offspring = draws.mating.shape
    if g < config.n_generations or (n_offspring, draws.mutation.shape[-1]) != (r, d):
        raise InvalidInputError(
            f"draws must be for {config.n_generations} generations of {r} offspring in {d} "
            f"dimensions, got {g} of {n_offspring} in {draws.mutation.shape[-1]}"
        )
    if vectors is not None:
        check_float_tensor("vectors", vectors, f"of shape {(b, r, m)}", (b, r, m))
    if grid is not None:
        check_float_tensor("grid", grid, f"of shape ({d},)", (d,))


def _select(
    population: Population, niches: Niches, initial_vectors: Tensor, t: int, config: RVEAConfig
) -> tuple[Population, Niches]:
    """Select generation t's survivors, and adapt the vectors when it is time."""
    penalty = config.penalty_at(t)
    winner, occupied = select_winners(population.F, population.alive, niches, penalty)
    F, X = take_rows(population.F, winner), take_rows(population.X, winner)
    if t > 0 and t % config.adaptation_interval == 0:
        niches = Niches.of(adapt(initial_vectors, span(F, occupied)))
    return Population(X=X, F=F, alive=occupied), niches
