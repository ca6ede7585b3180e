"""Random numbers: reproducible anywhere, and random."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from tcsaea_torch.rng import latin_hypercube, mix64, signed64, uniforms

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
DTYPES = [torch.float64, torch.float32]


def signed(value):
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def finalise(x):
    """SplitMix64's finaliser in Python integers, after the reference code in C."""
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def draw(seed, name="test", step=0, shape=(), **options):
    """Draw for one seed and drop the batch."""
    return uniforms(torch.tensor([seed]), name, step, shape, **options)[0]


# ------------------------------------------------------------------ the hash


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (-1, -1),
        (2**63 - 1, 2**63 - 1),
        (2**63, -(2**63)),
        (2**64 - 1, -1),
        (2**64, 0),
        (-(2**63) - 1, 2**63 - 1),
        (10**30, 10**30 - 54210108624 * 2**64),
    ],
)
def test_integers_of_any_size_become_int64_modulo_2_to_the_64(value, expected):
    assert signed64(value) == expected
    assert torch.tensor([signed64(value)]).dtype == torch.int64


@pytest.mark.parametrize(
    ("seed", "outputs"),
    [
        # The first numbers of Java's SplittableRandom and of the reference code in C.
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]),
        (
            1234567,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821,
            ],
        ),
    ],
)
def test_mix64_makes_the_published_splitmix64_sequences(seed, outputs, device):
    states = [signed(seed + k * GAMMA) for k in range(1, len(outputs) + 1)]
    mixed = mix64(torch.tensor(states, device=device))
    assert [value & MASK for value in mixed.tolist()] == outputs


def test_mix64_equals_python_integers(device):
    x = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 500)
    x[:6] = [0, -1, 1, 2**63 - 1, -(2**63), 2**62]
    mixed = mix64(torch.tensor(x, device=device).reshape(5, 100)).reshape(-1)
    assert [value & MASK for value in mixed.tolist()] == [finalise(int(value)) for value in x]


def test_mix64_is_one_to_one():
    assert len(mix64(torch.arange(-50_000, 50_000)).unique()) == 100_000


@pytest.mark.parametrize("seed", [0, 1, -1, 12345, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(("name", "step"), [("design", 0), ("soea/tournament", 7), ("ü", -1)])
def test_numbers_are_hashes_of_seed_name_step_and_index(seed, name, step):
    name_key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    key = finalise(finalise(seed * GAMMA + name_key) + step * GAMMA + 1)
    bits = [finalise(key + index * GAMMA) for index in range(1, 6)]
    assert draw(seed, name, step, (5,)).tolist() == [((b >> 12) + 0.5) / 2**52 for b in bits]
    narrow = draw(seed, name, step, (5,), dtype=torch.float32)
    assert narrow.tolist() == [((b >> 41) + 0.5) / 2**23 for b in bits]


# ------------------------------------------------------------------ what they depend on


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_draws_what_each_run_draws_alone_on_every_device(device, dtype):
    seeds = torch.tensor([5, 0, -3, 2**63 - 1, -(2**63), 5], device=device)
    together = uniforms(seeds, "a", 3, (7, 2), dtype=dtype)
    assert together.shape == (6, 7, 2)
    assert together.dtype == dtype
    assert together.device.type == device.type
    for row, seed in zip(together.cpu(), seeds.tolist(), strict=True):
        assert torch.equal(row, draw(seed, "a", 3, (7, 2), dtype=dtype))
    assert torch.equal(together[0], together[5])


def test_a_number_depends_on_its_flat_position_only():
    long = draw(3, shape=(60,))
    assert torch.equal(draw(3, shape=(20,)), long[:20])
    assert torch.equal(draw(3, shape=(3, 4, 5)), long.reshape(3, 4, 5))
    assert torch.equal(draw(3, shape=(2, 4, 5)), long[:40].reshape(2, 4, 5))
    assert torch.equal(draw(3, shape=()), long[0])
    assert draw(3, shape=(0, 4)).shape == (0, 4)
    assert draw(3, shape=[2, 2]).shape == (2, 2)


def test_another_seed_name_or_step_gives_other_numbers():
    seeds = [0, 1, -1, 2, 2**32, 2**63 - 1, -(2**63)]
    names = ["", "a", "b", "ab", "limit/fast"]
    draws = [
        draw(s, n, t, (4,)) for s in seeds for n in names for t in (0, 1, 2, 10**6, 2**64 - 2, -3)
    ]
    assert len(torch.stack(draws).flatten().unique()) == 4 * len(draws)


def test_no_seeds_no_numbers():
    assert uniforms(torch.zeros(0, dtype=torch.int64), "a", 0, (3,)).shape == (0, 3)


# ------------------------------------------------------------------ their range


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float64, 52), (torch.float32, 23)])
def test_numbers_lie_in_the_middle_of_cells_and_so_never_at_0_or_1(dtype, bits):
    # An odd multiple of 2^-(bits + 1) is neither 0 nor 1, and both types hold it exactly.
    multiples = draw(11, shape=(100_000,), dtype=dtype).double() * 2.0 ** (bits + 1)
    assert torch.equal(multiples % 2, torch.ones_like(multiples))
    assert multiples.min() > 0
    assert multiples.max() < 2.0 ** (bits + 1)
    # All bits are used: the smallest of many numbers is as small as chance has it.
    assert multiples.min() < 2.0 ** (bits + 1) * 1e-3


def test_float32_is_the_beginning_of_float64():
    wide, narrow = draw(4, shape=(1000,)), draw(4, shape=(1000,), dtype=torch.float32)
    assert ((wide - narrow.double()).abs() <= 2.0**-24).all()


# ------------------------------------------------------------------ their quality
#
# Everything is fixed, so these tests pass or fail for good: a p-value below 1e-4 would say
# that the numbers are poor, not that luck was bad.

N = 20_000
SEEDS = torch.arange(N)
STREAMS = {
    "index": draw(0, shape=(N,)),
    "index of a negative seed": draw(-(2**40), "b", 9, (N,)),
    "seed": uniforms(SEEDS, "test", 0, ()),
    "distant seed": uniforms(SEEDS * 2**40 - 2**62, "test", 0, ()),
    "step": torch.stack([draw(0, step=step) for step in range(2000)]),
    "name": torch.stack([draw(0, str(k)) for k in range(2000)]),
    "column of a design": draw(1, shape=(N // 10, 10))[:, 3],
}


@pytest.mark.parametrize("stream", STREAMS)
def test_uniform(stream):
    assert stats.kstest(STREAMS[stream].numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("stream", STREAMS)
def test_neighbours_fill_the_square(stream):
    u = STREAMS[stream].numpy()
    counts, _, _ = np.histogram2d(u[:-1:2], u[1::2], bins=8, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("lag", [1, 2, 3, 10, 100])
def test_no_serial_correlation(stream, lag):
    u = STREAMS[stream].numpy()
    assert abs(np.corrcoef(u[lag:], u[:-lag])[0, 1]) < 4.0 / len(u) ** 0.5


@pytest.mark.parametrize("bit", [1, 2, 8, 23, 40, 52])
def test_every_bit_is_fair(bit):
    ones = (STREAMS["index"] * 2.0**bit).floor() % 2
    assert stats.binomtest(int(ones.sum()), N).pvalue > 1e-4


def test_streams_of_different_seeds_steps_and_names_are_independent():
    variants = [("a", 0, 0), ("a", 0, 1), ("a", 0, 2), ("a", 1, 0), ("a", 1, 1), ("b", 0, 0)]
    variants += [("a", 0, -1), ("a", -1, 0), ("a/b", 0, 0), ("a", 2**20, 0)]
    draws = torch.stack([draw(seed, name, step, (N,)) for name, step, seed in variants])
    correlations = draws.corrcoef().fill_diagonal_(0.0)
    assert correlations.abs().max() < 5.0 / N**0.5
    for a, b in pairwise(draws.numpy()):
        counts, _, _ = np.histogram2d(a, b, bins=10, range=[[0, 1], [0, 1]])
        assert stats.chisquare(counts.ravel()).pvalue > 1e-4


# ------------------------------------------------------------------ Latin hypercubes


def cube(n, d, seeds=(0, 1, 2), dtype=torch.float64, alive=None):
    u, jitter = uniforms(torch.tensor(seeds), "cube", 0, (2, n, d), dtype=dtype).unbind(dim=1)
    return latin_hypercube(u, jitter, alive)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 5), (13, 3), (100, 2)])
def test_one_point_in_each_slice(n, d, dtype):
    X = cube(n, d, dtype=dtype)
    assert X.dtype == dtype
    assert X.shape == (3, n, d)
    slices = (X * n).floor().long().sort(dim=1).values
    assert torch.equal(slices, torch.arange(n)[:, None].expand(3, n, d))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_living_point_in_each_slice(dtype):
    n, d = 30, 4
    alive = torch.rand(3, n, generator=torch.Generator().manual_seed(2)) < 0.6
    alive[2] = False
    X = cube(n, d, dtype=dtype, alive=alive)
    for i, count in enumerate(alive.sum(dim=1).tolist()):
        living = X[i][alive[i]]
        slices = (living * count).floor().long().sort(dim=0).values
        assert torch.equal(slices, torch.arange(count)[:, None].expand(count, d))
        assert (X[i][~alive[i]] == 0.5).all()
    everyone = cube(n, d, dtype=dtype, alive=torch.ones(3, n, dtype=torch.bool))
    slices = (everyone * n).floor().long().sort(dim=1).values
    assert torch.equal(slices, torch.arange(n)[:, None].expand(3, n, d))


def test_jitter_places_the_point_within_its_slice():
    u = torch.tensor([[0.9], [0.1], [0.5], [0.2]], dtype=torch.float64)
    for jitter, alive in ((0.25, None), (0.75, torch.ones(4, dtype=torch.bool))):
        X = latin_hypercube(u, torch.full_like(u, jitter), alive)
        assert sorted(X.flatten().tolist()) == [(k + jitter) / 4 for k in range(4)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_jitter_does_not_leave_the_cube(dtype):
    largest = 1.0 - torch.finfo(dtype).eps / 2
    u = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert latin_hypercube(u, torch.full_like(u, largest)).max() <= 1.0


@pytest.mark.parametrize("alive", [None, torch.ones(6000, 3, dtype=torch.bool)])
def test_permutations_are_equally_likely_and_columns_independent(alive):
    X = cube(3, 2, seeds=range(6000), alive=alive)
    order = (X * 3).floor().long()
    _, counts = order.flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == 6 * 6
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_batch_equals_loop_on_every_device(device):
    generator = torch.Generator().manual_seed(1)
    u, jitter = torch.rand(2, 4, 9, 2, generator=generator, dtype=torch.float64)
    alive = torch.rand(4, 9, generator=generator) < 0.7
    on_device = [t.to(device) for t in (u, jitter, alive)]
    together = latin_hypercube(*on_device).cpu()
    for i in range(4):
        assert torch.equal(together[i], latin_hypercube(u[i], jitter[i], alive[i]))
        assert torch.equal(
            latin_hypercube(*on_device[:2])[i].cpu(), latin_hypercube(u[i], jitter[i])
        )
