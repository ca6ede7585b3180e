"""One table of bad input: what users can pass wrongly is refused, and the message helps.

The rows are in the modules `bad_input_*` beside this one.
A public callable or parameter without rows fails `test_every_parameter_is_in_the_table`.
"""

import inspect
from types import ModuleType

import pytest

import tcsaea_torch as tc
from tcsaea_torch.problems import base as problems
from tcsaea_torch.strategies import base as strategies
from tests.contracts import (  # noqa: F401  they fill the table
    bad_input_botorch,
    bad_input_external,
    bad_input_parts,
    bad_input_results,
    bad_input_runs,
)
from tests.contracts.bad_input import CALLEES, says

ROWS = [row for callee in CALLEES.values() for row in callee.rows]

TENSORS = "a function of tensors inside the search's loop: shapes are annotated"
NOT_IN_THE_TABLE = {
    "Evaluation": "made by the library",
    "NextAction": "made by the library",
    "Result": "made by the library",
    "strategies.check_proposal": "called by the optimizer",
    "strategies.Proposal": "written by strategies; the optimizer checks it",
    "strategies.RunView": "made by the library",
    "problems.TestProblem": "the arguments of Problem",
    "botorch_models.Synthetic": "made by the library",
    "models.Chosen": "made by the library",
    "models.LeaveOneOut": "made by the library",
    "models.Surrogate": "made by the library",
    "models.leave_one_out": "takes what the library made",
    "models.TrainingSet": TENSORS,
    "models.Hyperparameters": "checked where it is used, against the data",
    "evolution.Draws": TENSORS,
    "evolution.Population": TENSORS,
    "evolution.adapt": TENSORS,
    "evolution.apd_select": TENSORS,
    "evolution.kmeans": TENSORS,
    "evolution.polynomial_mutation": TENSORS,
    "evolution.sbx": TENSORS,
    "evolution.vary": TENSORS,
    "acquisition.AAFNormalizer": TENSORS,
    "acquisition.Strips": TENSORS,
    "acquisition.adaptive_acquisition": TENSORS,
    "acquisition.adaptive_weight": TENSORS,
    "acquisition.ehvi": TENSORS,
    "acquisition.log_ehvi": TENSORS,
    "acquisition.normalizer_from_model": "the model checks its points",
    "kernels.additive": TENSORS,
    "kernels.check_power_mode": "called by what takes p",
    "kernels.correlations": TENSORS,
    "kernels.matern52": TENSORS,
    "kernels.power": TENSORS,
    "kernels.power_exponential": TENSORS,
    "kernels.weighted_distance": TENSORS,
}
"""Public callables without rows, and why."""


def public_callables():
    """Return all public functions and classes of the package, and the methods of the latter."""
    found = {}
    for name in tc.__all__:
        value = getattr(tc, name)
        if not isinstance(value, ModuleType):
            found[name] = value
            continue
        here = [n for n, f in vars(value).items() if getattr(f, "__module__", "") == value.__name__]
        for inner in getattr(value, "__all__", here):
            found[f"{name}.{inner}"] = getattr(value, inner)
    enums = (tc.Objective, tc.Status)
    found = {
        name: f
        for name, f in found.items()
        if callable(f) and f not in enums and not name.split(".")[-1].startswith("_")
    }
    for kind in (tc.Problem, tc.Optimizer, tc.Result):
        methods = {n: m for n, m in vars(kind).items() if inspect.isfunction(m)}
        found |= {f"{kind.__name__}.{n}": m for n, m in methods.items() if not n.startswith("_")}
    # Protocols and type aliases are not called.
    return {n: f for n, f in found.items() if n not in ("strategies.Strategy", "strategies.State")}


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path, monkeypatch):
    """Registers and files are this test's own."""
    monkeypatch.chdir(tmp_path)
    for base in (problems, strategies):
        monkeypatch.setattr(base, "_FACTORIES", dict(base._FACTORIES))


@pytest.mark.parametrize("name", CALLEES)
@pytest.mark.usefixtures("unchecked")
def test_the_good_arguments_are_accepted(name):
    CALLEES[name].call()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused_with_a_message_that_helps(row):
    callee = CALLEES[row.callee]
    argument = {row.parameter: row.value}
    parameter = inspect.signature(callee.function).parameters.get(row.parameter)
    if parameter is not None and parameter.kind is parameter.VAR_KEYWORD:
        argument = {"n_news" if "'n_news'" in row.came else "tua": row.value}
    with pytest.raises(row.error) as caught:
        callee.call(**row.others, **argument)
    assert type(caught.value) is row.error
    assert says(row, str(caught.value)), str(caught.value)


def test_rows_are_distinct():
    ids = [row.id for row in ROWS]
    assert len(set(ids)) == len(ids)


def test_every_public_callable_is_in_the_table():
    functions = {callee.function for callee in CALLEES.values()}
    missing = {
        name
        for name, function in public_callables().items()
        if function not in functions and name not in NOT_IN_THE_TABLE
    }
    assert not missing
    assert public_callables().keys() >= NOT_IN_THE_TABLE.keys()  # no reason outlives its callable


@pytest.mark.parametrize("name", CALLEES)
def test_every_parameter_is_in_the_table(name):
    callee = CALLEES[name]
    parameters = set(inspect.signature(callee.function).parameters) - {"self"}
    rows = {row.parameter for row in callee.rows}
    assert rows <= parameters
    assert parameters == rows | callee.exempt.keys()
