"""The README's picture."""

from benchmarks import pictures
from tcsaea_torch.evolution.rvea import RVEAConfig


def test_the_picture_is_of_a_run_that_spends_its_budget(tmp_path):
    path = tmp_path / "folder" / "overview.png"
    quick = {"kernels": ("joint",), "link": None, "search": RVEAConfig(n_generations=2)}
    result = pictures.draw(path, n_slow=8, **quick, climbs=False)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(result.history) == 8 * 6
