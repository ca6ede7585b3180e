from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view, tell_all
from tcsaea_torch import strategies
from tcsaea_torch.errors import InvalidInputError, ProtocolError
from tcsaea_torch.strategies import TCSAEA, Proposal, RandomSearch, check_proposal, check_strategy
from tcsaea_torch.strategies.base import budget
from tests.strategies.runs import Toy


def test_names_and_objects_are_strategies():
    assert check_strategy("tc-saea") == TCSAEA()
    configured = TCSAEA(n_new=5)
    assert check_strategy(configured) is configured
    assert strategies.get("random") == RandomSearch()


@pytest.mark.parametrize("value", [TCSAEA, None, 3, object()])
@pytest.mark.usefixtures("unchecked")
def test_other_things_are_not(value):
    with pytest.raises(InvalidInputError, match="strategy must be a name or a configured"):
        check_strategy(value)


def test_unknown_names_and_options_are_named():
    with pytest.raises(InvalidInputError, match="did you mean 'tc-saea-released'"):
        strategies.get("tc-saea-relesed")
    with pytest.raises(InvalidInputError, match=r"tc-saea.*n_news"):
        strategies.get("tc-saea", n_news=3)


def view_of_rows():
    """Return a run of three points: both values, the fast one, none (idle)."""
    run = initial_view(Toy(), [0], n_slow=3, n_init=1)
    mask = torch.tensor([[[True, True], [True, False], [False, False]]])
    return tell_all(
        Toy(),
        run,
        Proposal(
            X=torch.tensor([[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]]).double(), evaluation_mask=mask
        ),
    )


def asking(row, column):
    run = view_of_rows()
    mask = torch.zeros(1, 3, 2, dtype=torch.bool)
    mask[0, row, column] = True
    return Proposal.of_rows(mask, run), run


def test_a_missing_value_of_a_known_point_can_be_asked_for():
    proposal, run = asking(1, 1)
    check_proposal("toy", proposal, run)
    assert proposal.n_asked.tolist() == [[0, 1]]
    assert not proposal.is_empty
    after = tell_all(Toy(), run, proposal)
    assert len(after.archive) == 3
    assert after.used.tolist() == [[2, 2]]
    assert after.archive.complete.tolist() == [[True, True, False]]
    expected = Toy().evaluate(run.archive.X[0, :2])
    assert torch.equal(after.archive.Y[0, :2], expected)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)])
def test_a_known_value_and_one_of_no_point_cannot(row, column):
    with pytest.raises(ProtocolError, match="must ask for missing values of the archive's points"):
        check_proposal("toy", *asking(row, column))


@pytest.mark.usefixtures("unchecked")
def test_the_mask_of_the_archive_has_its_shape_and_counts():
    proposal, run = asking(1, 1)
    for wrong in (torch.zeros(1, 2, 2, dtype=torch.bool), torch.zeros(1, 3, 2)):
        with pytest.raises(ProtocolError, match=r"boolean archive_mask of shape \(1, 3, 2\)"):
            check_proposal("toy", replace(proposal, archive_mask=wrong), run)
    with pytest.raises(ProtocolError, match="more than the budget"):
        check_proposal("toy", proposal, replace(run, total=torch.tensor([[15, 1]])))


def test_a_strategy_that_ignores_the_delay_has_as_many_slow_evaluations_as_fast_ones():
    class Undelayed(RandomSearch):
        ignores_delay = True

    assert budget(RandomSearch(), Toy(tau=2.5), 7) == (17, 7)
    assert budget(Undelayed(), Toy(tau=2.5), 7) == (17, 17)
