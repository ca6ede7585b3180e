"""Simulated binary crossover and polynomial mutation [Deb1995, Deb1996], in the unit cube.

The operators are functions of their uniform numbers. `Draws` holds those of many
generations, made in one call.

[Deb1995] K. Deb, R. B. Agrawal. Simulated binary crossover for continuous search
space. Complex Systems 9, 1995.
[Deb1996] K. Deb, M. Goyal. A combined genetic adaptive search (GeneAS) for engineering
design. Computer Science and Informatics 26, 1996.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_bool, check_real, keep_checked

# Variables in a block of generations: what fits a CPU's cache, or fills a GPU.
_BLOCK_ON_CPU, _BLOCK = 2**15, 2**22


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
        u: Uniform numbers that set the spread, above 0 and below 1.
        is_negative: Whether the spread is negative, which swaps the offspring.
        is_crossed: Variables that are crossed at all.
        index: Distribution index.
    """
    share = _partner_share(u, is_negative, is_crossed, index)
    return first.lerp(second, share), second.lerp(first, share)


def _partner_share(u: Tensor, is_negative: Tensor, is_crossed: Tensor, index: float) -> Tensor:
    """Return the weight of the other parent in an offspring.

    With the spread beta, offspring are middle +- beta * half of the difference; that is
    (1 + beta) / 2 of one parent and (1 - beta) / 2 of the other.
    """
    # Arithmetic with masks as numbers: on a CPU, where() is slow for random masks.
    exponent = (0.5 - u).sign_().div_(index + 1.0)
    beta = torch.minimum(u, 1.0 - u).mul_(2.0).pow_(exponent)
    sign = is_negative.to(u.dtype).mul_(-2.0).add_(1.0)
    return beta.mul_(sign).sub_(1.0).mul_(-0.5).mul_(is_crossed.to(u.dtype))


@dataclass(frozen=True, kw_only=True, eq=False)
class Mutation:
    """What is known of a polynomial mutation before the points are."""

    bound: Float[Tensor, "*batch n d"]
    """The bound, 0 or 1, that a variable moves away from."""
    direction: Float[Tensor, "*batch n d"]
    """1 up, -1 down."""
    floor: Float[Tensor, "*batch n d"]
    """2 min(u, 1 - u), which sets the size of the step; 1 is no step."""

    @classmethod
    def of(
        cls, u: Float[Tensor, "*batch n d"], is_mutated: Bool[Tensor, "*batch n d"]
    ) -> "Mutation":
        """Derive it from the arguments of `polynomial_mutation`."""  # fmt: skip
        bound = (u < 0.5).to(u.dtype)
        floor = torch.minimum(u, 1.0 - u).mul_(2.0).maximum((~is_mutated).to(u.dtype))
        return cls(bound=bound, direction=1.0 - 2.0 * bound, floor=floor)

    def __call__(self, X: Float[Tensor, "*batch n d"], index: float) -> Float[Tensor, "*batch n d"]:
        """Mutate points, see `polynomial_mutation`."""
        exponent = index + 1.0
        # Distances from the bound; none to a point beyond it.
        t = torch.addcmul(self.bound, self.direction, X).clamp_min_(0.0)
        power = t.pow_(exponent)
        base = torch.addcmul(power, self.floor, power - 1.0, value=-1.0)
        root = base.pow_(1.0 / exponent)
        return torch.addcmul(X, self.direction, root.sub_(1.0), value=-1.0)


def polynomial_mutation(
    X: Float[Tensor, "*batch n d"],
    u: Float[Tensor, "*batch n d"],
    is_mutated: Bool[Tensor, "*batch n d"],
    index: float,
) -> Float[Tensor, "*batch n d"]:
    """Mutate variables within the unit interval; others keep their value.

    Down towards 0 for u < 1/2, up towards 1 otherwise: a variable at the distance t from
    the other bound moves by 1 - (2v + (1 - 2v) t^(index + 1))^(1 / (index + 1)), with
    v = min(u, 1 - u).

    Args:
        X: Points, which may lie slightly outside the unit cube.
        u: Uniform numbers that set direction and size.
        is_mutated: Variables to mutate.
        index: Distribution index.
    """
    return Mutation.of(u, is_mutated)(X, index)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """What is known of a generation's offspring before their parents are."""

    mating: Float[Tensor, "*batch n"]
    """Uniform numbers for the choice of parents."""
    share: Float[Tensor, "*batch s d"]
    """Weight of the other parent in each of s = 2h members of pairs."""
    mutation: Mutation

    @classmethod
    def of(
        cls,
        mating: Float[Tensor, "*batch n"],
        crossover: Float[Tensor, "*batch 3 h d"],
        mutation: Float[Tensor, "*batch 2 n d"],
        config: Variation,
    ) -> "Recipe":
        """Derive it from uniform numbers, see `Draws`."""  # fmt: skip
        spread, sign, choice = crossover.unbind(dim=-3)
        is_crossed = choice <= config.crossover_probability
        share = _partner_share(spread, sign < 0.5, is_crossed, config.crossover_index)
        site, size = mutation.unbind(dim=-3)
        return cls(
            mating=mating,
            share=share.repeat_interleave(2, dim=-2),
            mutation=Mutation.of(size, site <= config.mutation_rate / site.shape[-1]),
        )

    def unbind(self) -> Iterator["Recipe"]:
        """Go through the generations of `b x g` recipes."""
        m = self.mutation
        terms = (self.mating, self.share, m.bound, m.direction, m.floor)
        for mating, share, bound, direction, floor in zip(
            *(term.unbind(dim=1) for term in terms), strict=True
        ):
            step = Mutation(bound=bound, direction=direction, floor=floor)
            yield Recipe(mating=mating, share=share, mutation=step)


def recipes(draws: Draws, n_generations: int, config: Variation) -> Iterator[Recipe]:
    """Go through the recipes of the first generations, made a block of generations at a time."""
    b, _, _, n, d = draws.mutation.shape
    block_size = _BLOCK_ON_CPU if draws.mutation.device.type == "cpu" else _BLOCK
    size = max(1, block_size // max(1, b * n * d))
    for start in range(0, n_generations, size):
        block = slice(start, min(start + size, n_generations))
        yield from Recipe.of(
            draws.mating[:, block], draws.crossover[:, block], draws.mutation[:, block], config
        ).unbind()


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
    recipe = Recipe.of(mating, crossover, mutation, config)
    return breed(X, alive, recipe, config, each_once=each_once)


def breed(
    X: Float[Tensor, "*batch r d"],
    alive: Bool[Tensor, "*batch r"],
    recipe: Recipe,
    config: Variation,
    *,
    each_once: bool,
) -> tuple[Float[Tensor, "*batch n d"], Bool[Tensor, "*batch n"]]:
    """Do what `vary` does, with a recipe made in advance."""
    n, n_slots = recipe.mating.shape[-1], recipe.share.shape[-2]
    choose = _each_once if each_once else _at_random
    parents, lives = choose(alive, recipe.mating, n_slots)
    chosen = take_rows(X, parents)
    partners = chosen.view(*chosen.shape[:-2], n_slots // 2, 2, -1).flip(-2).view_as(chosen)
    offspring = chosen.lerp_(partners, recipe.share).narrow(-2, 0, n)
    if config.clip_before_mutation:
        offspring = offspring.clamp(0.0, 1.0)
    return recipe.mutation(offspring, config.mutation_index).clamp_(0.0, 1.0), lives


def _each_once(alive: Tensor, mating: Tensor, n_slots: int) -> tuple[Tensor, Tensor]:
    """Put the living in the order of their numbers, over and over until slots are full."""
    slots = torch.arange(n_slots, device=alive.device)
    n_alive = alive.sum(dim=-1, keepdim=True).clamp_min_(1)
    order = mating.masked_fill(~alive, torch.inf).argsort(dim=-1)
    return order.gather(-1, slots % n_alive), slots[: mating.shape[-1]] < n_alive


def _at_random(alive: Tensor, mating: Tensor, n_slots: int) -> tuple[Tensor, Tensor]:
    """Draw one of the living for each slot; a slot without a number takes the middle one."""
    lives = torch.ones_like(mating, dtype=torch.bool)
    n_unnumbered = n_slots - mating.shape[-1]
    if n_unnumbered > 0:
        mating = torch.nn.functional.pad(mating, (0, n_unnumbered), value=0.5)
    # Counted in integers: torch takes sums of floats for non-deterministic on a GPU.
    rank = alive.cumsum(dim=-1).to(mating.dtype)
    # The first whose rank is above u * n_alive is the one numbered floor(u * n_alive).
    parents = torch.searchsorted(rank, mating * rank[..., -1:], right=True)
    return parents.clamp_max_(alive.shape[-1] - 1), lives
