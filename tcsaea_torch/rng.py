"""Counter-based random numbers: no generator, no state, the same on every device.

A number is a hash of (seed, name, step, index). So a run draws the same numbers
alone or within any batch, on the CPU or on CUDA, and a resumed run needs nothing
but its seed. The hash is SplitMix64 [Steele2014], written in wrapping int64 tensor
operations.

[Steele2014] G. L. Steele, D. Lea, C. H. Flood. Fast splittable pseudorandom number
generators. OOPSLA 2014.
"""

import hashlib
import math
from collections.abc import Sequence

import torch

from tcsaea_torch.types import Bool, Float, Int, Tensor


def signed64(value: int) -> int:
    """Return the int64 that equals any integer modulo 2^64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = signed64(0x9E3779B97F4A7C15)
_MIX_1 = signed64(0xBF58476D1CE4E5B9)
_MIX_2 = signed64(0x94D049BB133111EB)


# Numbers made at a time: what fits a CPU's cache (several times as fast), or fills a GPU.
_BLOCK_ON_CPU, _BLOCK = 2**15, 2**24


def _shift_right(x: Tensor, k: int) -> Tensor:
    """Shift logically: torch's >> on int64 copies the sign bit, so mask it away."""
    return (x >> k).bitwise_and_((1 << (64 - k)) - 1)


def mix64(x: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Apply SplitMix64's finaliser, a bijection of the 64-bit integers."""
    return _mix_(x.clone())


def _mix_(x: Tensor) -> Tensor:
    """Apply it in place."""
    x ^= _shift_right(x, 30)
    x *= _MIX_1
    x ^= _shift_right(x, 27)
    x *= _MIX_2
    x ^= _shift_right(x, 31)
    return x


def _name_key(name: str) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return signed64(int.from_bytes(digest, "little"))


def uniforms(
    seeds: Int[Tensor, " b"],
    name: str,
    step: int,
    shape: Sequence[int],
    *,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "b *shape"]:
    """Draw numbers uniform in the open interval (0, 1).

    Args:
        seeds: One seed for each batch member; the numbers lie on its device.
        name: What they are for; different names give independent streams.
        step: Counter of the calls with this name.
        shape: Shape for one batch member.
        dtype: torch.float64 (52 random bits) or torch.float32 (23 bits).

    Returns:
        `b x *shape` numbers; member i depends on `seeds[i]`, `name`, `step` and the
        position within `shape` only.
    """
    key = mix64(seeds * _GOLDEN + _name_key(name))
    key = mix64(key + signed64(step * 0x9E3779B97F4A7C15 + 1)).unsqueeze(-1)
    n = math.prod(shape)
    values = torch.empty(len(seeds), n, dtype=dtype, device=seeds.device)
    block = _BLOCK_ON_CPU if seeds.device.type == "cpu" else _BLOCK
    n_columns = max(1, min(n, block))
    n_rows = block // n_columns
    for column in range(0, n, n_columns):
        stop = min(n, column + n_columns)
        index = torch.arange(column + 1, stop + 1, device=seeds.device) * _GOLDEN
        for row in range(0, len(seeds), n_rows):
            rows = slice(row, row + n_rows)
            _to_uniform(_mix_(key[rows] + index), out=values[rows, column:stop])
    return values.reshape(len(seeds), *shape)


def _to_uniform(bits: Tensor, *, out: Tensor) -> None:
    """Write numbers made of the highest bits, which are overwritten."""
    n_bits = 52 if out.dtype == torch.float64 else 23
    bits >>= 64 - n_bits
    bits &= (1 << n_bits) - 1
    # The half keeps 0 and 1 out, exactly representable with one bit to spare.
    out.copy_(bits).add_(0.5).mul_(2.0**-n_bits)


def latin_hypercube(
    u: Float[Tensor, "*batch n d"],
    jitter: Float[Tensor, "*batch n d"],
    alive: Bool[Tensor, "*batch n"] | None = None,
) -> Float[Tensor, "*batch n d"]:
    """Make a random Latin hypercube in the unit cube.

    Args:
        u: Uniform numbers whose order gives the permutation of each column.
        jitter: Uniform numbers that place each point within its cell.
        alive: Rows that take part; None means all.

    Returns:
        `*batch x n x d` points. The k living rows have one point in each of k slices
        of every dimension; the other rows hold the centre of the cube.
    """
    if alive is None:
        return (u.argsort(dim=-2).to(u.dtype) + jitter) / u.shape[-2]
    keys = torch.where(alive.unsqueeze(-1), u, torch.inf)
    ranks = keys.argsort(dim=-2).argsort(dim=-2).to(u.dtype)
    n = alive.sum(dim=-1).clamp_min(1)[..., None, None]
    return torch.where(alive.unsqueeze(-1), (ranks + jitter) / n, 0.5)
