import pytest

from tcsaea_torch import strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.strategies import TCSAEA, RandomSearch, check_strategy


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
