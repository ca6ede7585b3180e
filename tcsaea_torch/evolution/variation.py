"""Simulated binary crossover and polynomial mutation [Deb1995, Deb1996], in the unit cube.

The operators are functions of their uniform numbers. `Draws` holds those of many
generations, made in one call.

[Deb1995] K. Deb, R. B. Agrawal. Simulated binary crossover for continuous search
space. Complex Systems 9, 1995.
[Deb1996] K. Deb, M. Goyal. A combined genetic adaptive search (GeneAS) for engineering
design. Computer Science and Informatics 26, 1996.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_bool, check_real, keep_checked


@dataclass(frozen=True, kw_only=True)
class Variation:
    """Parameters of crossover and mutation; the defaults are the released code's.

    Raises:
        InvalidInputError: If a probability or an index is out of range.
    """

    crossover_probability: float = 0.8
    """Probability that a variable of a pair is crossed."""
    crossover_index: float = 20.0
    """Distribution index of the crossover: larger means nearer to the parents."""
    mutation_rate: float = 1.0
    """Expected number of mutated variables of an offspring."""
    mutation_index: float = 20.0
    """Distribution index of the mutation."""
    clip_before_mutation: bool = False
    """Whether offspring are clipped to the box before mutation too (as in PlatEMO)."""

    def __post_init__(self) -> None:
        keep_checked(self, check_real, "crossover_probability", minimum=0.0, maximum=1.0)
        rates = ("crossover_index", "mutation_rate", "mutation_index")
        keep_checked(self, check_real, *rates, minimum=0.0)
        check_bool("clip_before_mutation", self.clip_before_mutation)


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Uniform numbers for `g` generations of `n` offspring each."""

    mating: Float[Tensor, "b g n"]
    crossover: Float[Tensor, "b g 3 h d"]
    """Spread, sign and choice for each variable of h = ceil(n / 2) pairs."""
    mutation: Float[Tensor, "b g 2 n d"]
    """Choice and size for each variable of an offspring."""

    @classmethod
    def make(
        cls,
        seeds: Int[Tensor, " b"],
        name: str,
        step: int,
        g: int,
        n: int,
        d: int,
        dtype: torch.dtype,
    ) -> "Draws":
        """Draw all numbers for g generations."""  # fmt: skip
        h = (n + 1) // 2
        return cls(
            mating=uniforms(seeds, f"{name}/mating", step, (g, n), dtype=dtype),
            crossover=uniforms(seeds, f"{name}/crossover", step, (g, 3, h, d), dtype=dtype),
            mutation=uniforms(seeds, f"{name}/mutation", step, (g, 2, n, d), dtype=dtype),
        )


def sbx(
    first: Float[Tensor, "*batch h d"],
    second: Float[Tensor, "*batch h d"],
    u: Float[Tensor, "*batch h d"],
    is_negative: Bool[Tensor, "*batch h d"],
    is_crossed: Bool[Tensor, "*batch h d"],
    index: float,
) -> tuple[Float[Tensor, "*batch h d"], Float[Tensor, "*batch h d"]]:
    """Cross pairs of parents; the offspring may lie outside the box.

    Args:
        first: One parent of each pair.
        second: The other.
        u: Uniform numbers that set the spread.
        is_negative: Whether the spread is negative, which swaps the offspring.
        is_crossed: Variables that are crossed at all.
        index: Distribution index.
    """
    base = torch.where(u <= 0.5, 2.0 * u, 1.0 / (2.0 - 2.0 * u))
    beta = base ** (1.0 / (index + 1.0))
    beta = torch.where(is_negative, -beta, beta)
    beta = torch.where(is_crossed, beta, 1.0)
    middle, half = (first + second) / 2.0, (first - second) / 2.0
    return middle + beta * half, middle - beta * half


def polynomial_mutation(
    X: Float[Tensor, "*batch n d"],
    u: Float[Tensor, "*batch n d"],
    is_mutated: Bool[Tensor, "*batch n d"],
    index: float,
) -> Float[Tensor, "*batch n d"]:
    """Mutate variables within the unit interval; others keep their value.

    Args:
        X: Points, which may lie slightly outside the unit cube.
        u: Uniform numbers that set direction and size.
        is_mutated: Variables to mutate.
        index: Distribution index.
    """
    exponent = index + 1.0
    # Down towards 0 for u < 1/2, up towards 1 otherwise.
    down = 2.0 * u + (1.0 - 2.0 * u) * (1.0 - X) ** exponent
    up = 2.0 * (1.0 - u) + 2.0 * (u - 0.5) * X**exponent
    # Outside the box a base can be just below 0; the clip brings such points back anyway.
    change = torch.where(
        u < 0.5,
        down.clamp_min(0.0) ** (1.0 / exponent) - 1.0,
        1.0 - up.clamp_min(0.0) ** (1.0 / exponent),
    )
    return torch.where(is_mutated, X + change, X)


def vary(
    X: Float[Tensor, "*batch r d"],
    alive: Bool[Tensor, "*batch r"],
    mating: Float[Tensor, "*batch n"],
    crossover: Float[Tensor, "*batch 3 h d"],
    mutation: Float[Tensor, "*batch 2 n d"],
    config: Variation,
    *,
    each_once: bool,
) -> tuple[Float[Tensor, "*batch n d"], Bool[Tensor, "*batch n"]]:
    """Breed n offspring from the living.

    Args:
        X: Parents.
        alive: Parents that may mate; at least one per batch member.
        mating: Uniform numbers for the choice of parents.
        crossover: Uniform numbers, see `Draws`.
        mutation: Uniform numbers, see `Draws`.
        config: Parameters of the operators.
        each_once: True pairs the permuted population, so that as many offspring live as
            parents; False draws 2h parents at random and all n offspring live.

    Returns:
        Offspring in the unit cube and which of them live.
    """
    n, d = mating.shape[-1], X.shape[-1]
    h = crossover.shape[-2]
    slots = torch.arange(2 * h, device=X.device)
    n_alive = alive.sum(dim=-1, keepdim=True).clamp_min(1)
    if each_once:
        keys = mating.masked_fill(~alive, torch.inf)
        parents = keys.argsort(dim=-1).gather(-1, slots % n_alive)
        lives = slots[:n] < n_alive
    else:
        living = (~alive).to(torch.int8).argsort(dim=-1, stable=True)
        u = torch.nn.functional.pad(mating, (0, 2 * h - n), value=0.5)
        parents = living.gather(-1, (u * n_alive).long())
        lives = torch.ones_like(mating, dtype=torch.bool)
    chosen = take_rows(X, parents)
    spread, sign, choice = crossover.unbind(dim=-3)
    children = sbx(
        chosen[..., 0::2, :],
        chosen[..., 1::2, :],
        spread,
        sign < 0.5,
        choice <= config.crossover_probability,
        config.crossover_index,
    )
    offspring = torch.stack(children, dim=-2).flatten(-3, -2)[..., :n, :]
    if config.clip_before_mutation:
        offspring = offspring.clamp(0.0, 1.0)
    site, size = mutation.unbind(dim=-3)
    is_mutated = site <= config.mutation_rate / d
    offspring = polynomial_mutation(offspring, size, is_mutated, config.mutation_index)
    return offspring.clamp(0.0, 1.0), lives
