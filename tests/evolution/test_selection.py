import math

import pytest
import torch

from tcsaea_torch.evolution import adapt, apd_select, simplex_lattice
from tcsaea_torch.evolution.selection import first_minima, smallest_angles
from tests.conftest import load_reference

CASES = load_reference("apd_selection")["cases"]


def select(F, V, penalty, alive=None):
    alive = torch.ones(F.shape[:-1], dtype=torch.bool) if alive is None else alive
    return apd_select(F, alive, V, penalty)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_selects_what_platemo_selects(case, tensor):
    F, V = tensor(case["F"]), tensor(case["V"])
    winner, occupied = select(F, V, case["theta"])
    if case["name"] == "constant_f1":
        # PlatEMO passes over the row at the ideal point, whose angle is NaN there; ours is
        # taken into the first niche instead. Everything else agrees.
        ideal = int(F[:, 1].argmin())
        assert ideal in winner[occupied].tolist()
        return
    assert winner[occupied].tolist() == case["selected_0based"]


@pytest.mark.parametrize("case", [c for c in CASES if not c["nan_case"]], ids=lambda c: c["name"])
def test_adapts_vectors_as_platemo_does(case, tensor):
    F = tensor(case["F"])
    adapted = adapt(tensor(case["V"]), F.amax(dim=0) - F.amin(dim=0))
    assert torch.equal(adapted, tensor(case["V_adapted"]))


def naive_select(F, V, penalty):
    """Eqs. (5) to (9) of [Cheng2016], one individual at a time."""

    def angle(a, b):
        return torch.acos(torch.dot(a, b).div(a.norm() * b.norm()).clamp(-1, 1))

    gammas = [min(angle(v, w) for j, w in enumerate(V) if j != i) for i, v in enumerate(V)]
    winners = {}
    for i, f in enumerate(F - F.amin(dim=0)):
        angles = torch.stack([angle(f, v) if f.norm() > 0 else f.norm() for v in V])
        niche = int(angles.argmin())
        apd = (1 + len(f) * penalty * angles[niche] / gammas[niche]) * f.norm()
        if niche not in winners or apd < winners[niche][0]:
            winners[niche] = apd, i
    return {niche: i for niche, (_, i) in winners.items()}


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("penalty", [0.0, 0.2, 1.0])
def test_equals_a_naive_selection(m, penalty):
    F = torch.rand(50, m, generator=torch.Generator().manual_seed(m), dtype=torch.float64)
    V = simplex_lattice(15, m)
    winner, occupied = select(F, V, penalty)
    found = {j: int(winner[j]) for j in range(len(V)) if occupied[j]}
    assert found == naive_select(F, V, penalty)


def test_first_minima_equals_a_table(device):
    generator = torch.Generator().manual_seed(5)
    values = torch.randint(0, 4, (10, 60), generator=generator).double()
    values[torch.rand(10, 60, generator=generator) < 0.3] = torch.inf
    group = torch.randint(0, 25, (10, 60), generator=generator)
    index, exists = first_minima(values.to(device), group.to(device), 25)
    member = group.unsqueeze(-2) == torch.arange(25).unsqueeze(-1)
    table = torch.where(member, values.unsqueeze(-2), torch.inf)
    assert torch.equal(exists.cpu(), table.isfinite().any(dim=-1))
    assert torch.equal(index.cpu()[exists.cpu()], table.argmin(dim=-1)[exists.cpu()])
    assert ((index >= 0) & (index < 60)).all()


def test_batch_equals_loop_and_the_dead_take_no_part(tensor):
    generator = torch.Generator().manual_seed(1)
    F = torch.rand(5, 40, 2, generator=generator, dtype=torch.float64)
    alive = torch.rand(5, 40, generator=generator) < 0.6
    V = simplex_lattice(12)
    winner, occupied = apd_select(F, alive, V, 0.3)
    for i in range(5):
        rows = alive[i].nonzero().squeeze(-1)
        alone, taken = select(F[i][rows], V, 0.3)
        assert torch.equal(occupied[i], taken)
        assert torch.equal(winner[i][taken], rows[alone[taken]])


def test_penalty_may_differ_between_runs(tensor):
    F = torch.rand(60, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    V = simplex_lattice(7)
    penalties = tensor([0.0, 0.1, 0.5, 1.0])
    winner, occupied = select(F.expand(4, -1, -1), V, penalties)
    assert len({tuple(row.tolist()) for row in winner}) > 1
    for i, penalty in enumerate(penalties.tolist()):
        alone, taken = select(F, V, penalty)
        assert torch.equal(occupied[i], taken)
        assert torch.equal(winner[i][taken], alone[taken])


def test_one_survivor_identical_individuals_and_a_constant_objective():
    V = simplex_lattice(2)
    same = torch.full((6, 2), 0.5, dtype=torch.float64)
    winner, occupied = select(same, V, 1.0)
    assert occupied.tolist() == [True, False]
    assert winner[0] == 0
    alive = torch.tensor([False, False, True, False, False, False])
    winner, occupied = select(torch.arange(12).reshape(6, 2).double(), V, 1.0, alive)
    assert winner[occupied].tolist() == [2]
    winner, occupied = select(same, V, 1.0, torch.zeros(6, dtype=torch.bool))
    assert not occupied.any()
    F = torch.stack([torch.ones(6), torch.linspace(0, 1, 6)], dim=-1).double()
    winner, occupied = select(F, V, 1.0)
    assert 0 in winner[occupied].tolist()


def test_objective_scales_do_not_change_the_choice():
    F = torch.rand(30, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    V = simplex_lattice(10)
    expected = select(F, V, 0.4)
    for scale in (1e-9, 1e9):
        winner, occupied = select(F * scale, V, 0.4)
        assert torch.equal(occupied, expected[1])
        assert torch.equal(winner[occupied], expected[0][occupied])


def test_smallest_angles():
    axes = torch.eye(3, dtype=torch.float64)
    assert torch.allclose(smallest_angles(axes), torch.full((3,), math.pi / 2).double())
    assert float(smallest_angles(axes[:1])) == pytest.approx(math.pi / 2)
    assert (smallest_angles(torch.stack([axes[0], axes[0]])) > 0).all()


def test_adapt_keeps_vectors_apart_without_range():
    V = simplex_lattice(5)
    assert torch.equal(adapt(V, torch.zeros(2).double()), V)
    stretched = adapt(V, torch.tensor([0.0, 1e6], dtype=torch.float64))
    assert torch.equal(stretched, V * 1e6)
