"""The node in experiments of the real Ax."""
# pyright: reportMissingImports=false

import copy
from dataclasses import replace

import pytest

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError, ProtocolError

pytest.importorskip("ax")

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.parameter import (
    ChoiceParameter,
    FixedParameter,
    ParameterType,
    RangeParameter,
)
from ax.generation_strategy.generation_strategy import GenerationStrategy

from tcsaea_torch.integrations.ax import TCGenerationNode

# Ax uses what pandas and Ax itself deprecate.
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ax\..*")

CHEAP = tc.TCEHVI(asynchronous=True, kernels=("joint",), link=None, n_ref_vectors=10, climbs=False)


def uniform(name="x", low=0.0, high=1.0, kind="float", **options):
    return RangeParameterConfig(name=name, bounds=(low, high), parameter_type=kind, **options)


BOX = [uniform(), uniform("y", -2, 3)]


def client_of(node, parameters=BOX, objective="-fast, -slow", **options):
    client = Client(random_seed=0)
    client.configure_experiment(parameters=parameters)
    client.configure_optimization(objective=objective, **options)
    client.set_generation_strategy(GenerationStrategy(name="TC", nodes=[node]))
    return client


def values(params):
    x, y = params["x"], params.get("y", 0.0)
    return {"fast": x, "slow": (1 - x) ** 2 + y**2}


def run(client, n=8, at_once=1, outcome=values):
    """Make trials and return their parameters."""
    found = []
    for _ in range(n // at_once):
        for k, params in client.get_next_trials(at_once).items():
            client.complete_trial(k, raw_data=outcome(params))
            found.append(params)
    return found


def places(trials):
    return [tuple(params.values()) for params in trials]


def known(node):
    return node._run._optimizer


# ---------------------------------------------------------------- parameters


def test_values_are_what_the_parameters_say():
    parameters = [
        uniform(),
        uniform("log", 1e-3, 10, scaling="log"),
        uniform("whole", -3, 4, kind="int"),
        uniform("whole_log", 1, 400, kind="int", scaling="log"),
        uniform("step", 0, 1, step_size=0.25),
        ChoiceParameterConfig(
            name="level", values=[1, 2, 8], parameter_type="int", is_ordered=True
        ),
        ChoiceParameterConfig(name="two", values=["a", "b"], parameter_type="str", is_ordered=True),
    ]
    node = TCGenerationNode("random", n_trials=14, n_init=14, seed=1)
    client = client_of(node, parameters)
    client._experiment.search_space.add_parameter(
        FixedParameter("fixed", ParameterType.STRING, "oak")
    )
    client._experiment.search_space.add_parameter(
        RangeParameter("rounded", ParameterType.FLOAT, 0.0, 1.0, digits=2)
    )
    trials = run(client, 14)
    space = client._experiment.search_space
    assert all(space.check_membership(params) for params in trials)
    columns = {name: [params[name] for params in trials] for name in trials[0]}
    assert set(columns["whole"]) == set(range(-3, 5))
    assert {type(v) for name in ("whole", "whole_log", "level") for v in columns[name]} == {int}
    assert set(columns["step"]) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert set(columns["level"]) == {1, 2, 8}
    assert set(columns["two"]) == {"a", "b"}
    assert set(columns["fixed"]) == {"oak"}
    assert all(value == round(value, 2) for value in columns["rounded"])
    assert sum(value < 0.1 for value in columns["log"]) == 7  # half of them, in logarithms
    assert len(set(places(trials))) == 14


# ---------------------------------------------------------------- whole runs


def test_a_client_makes_eight_trials():
    node = TCGenerationNode(CHEAP, n_trials=8, n_init=5, seed=0)
    client = client_of(node)
    trials = run(client)
    assert len(set(places(trials))) == 8
    assert known(node).n_used == (8, 8)
    assert known(node).archive.observed.all(dim=-1).sum() == 7  # the last was told to Ax only
    # The best y is 0, of -2 to 3.
    assert all(abs(params["y"]) < 0.5 for params in trials[5:])
    assert (client.summarize()["generation_node"] == "TC").all()


def test_maximising_is_minimising_with_the_other_sign():
    def mirrored(params):
        outcome = values(params)
        return {**outcome, "fast": -outcome["fast"]}

    strategy = replace(CHEAP, guesses_bounds=False)
    one, other = (
        run(client_of(TCGenerationNode(strategy, n_init=5), objective=objective), 7, outcome=f)
        for f, objective in ((values, "-fast, -slow"), (mirrored, "fast, -slow"))
    )
    assert places(one) == places(other)


def test_seeds_reproduce():
    first, again, other = (
        places(run(client_of(TCGenerationNode("tc-saea", n_trials=8, n_init=6, seed=s)), 8, 2))
        for s in (3, 3, 4)
    )
    assert first == again
    assert not set(first) & set(other)


def test_thresholds_are_the_reference_point():
    node = TCGenerationNode("random", seed=0)
    client = client_of(node, outcome_constraints=["fast <= 0.8", "slow <= 2.5"])
    run(client, 1)
    assert known(node).problem.ref_point.tolist() == [0.8, 2.5]


def test_an_experiment_may_have_more_trials_than_were_planned():
    node = TCGenerationNode("random", n_trials=4, n_init=3, seed=0)
    assert len(set(places(run(client_of(node), 9, 3)))) == 9


# ---------------------------------------------------------------- trials of all kinds


def test_trials_that_run_are_avoided_and_may_end_in_any_order():
    node = TCGenerationNode(replace(CHEAP, clearance=0.05), n_trials=16, n_init=4, seed=0)
    client = client_of(node)
    run(client, 4)
    trials = client.get_next_trials(3)
    X = [(params["x"], (params["y"] + 2) / 5) for params in trials.values()]
    for k, a in enumerate(X):
        for b in X[:k]:
            assert max(abs(a[0] - b[0]), abs(a[1] - b[1])) >= 0.05
    optimizer = known(node)
    last = max(trials)
    client.complete_trial(last, raw_data=values(trials[last]))
    client.get_next_trials(1)
    assert known(node) is optimizer
    assert optimizer.n_used == (8, 8)  # each was recognised: nothing was asked for twice
    assert len(optimizer.pending) == 2 * 3
    assert optimizer.archive.observed.all(dim=-1).sum() == 5


def test_trials_of_others_and_failures_count():
    node = TCGenerationNode("random", n_trials=12, n_init=5, seed=0)
    client = client_of(node)
    for k in range(3):  # attached: completed
        i = client.attach_trial({"x": k / 3, "y": k / 2})
        client.complete_trial(i, raw_data={"fast": k, "slow": -k})
    client.attach_trial({"x": 0.5, "y": 2.5})  # running
    client.mark_trial_failed(client.attach_trial({"x": 0.6, "y": 2.5}))
    client.mark_trial_abandoned(client.attach_trial({"x": 0.7, "y": 2.5}))
    half = client.attach_trial({"x": 0.8, "y": 2.5})
    client.complete_trial(half, raw_data={"fast": 4.0})
    run(client, 1)
    client.get_next_trials(1)
    archive = known(node).archive
    failed = [r for r in known(node)._state.records if r.status is tc.Status.FAILED]
    assert len(failed) == 2 + 2 + 1
    assert archive.observed[0].sum(dim=0).tolist() == [5, 4]
    assert archive.Y[0, :3].tolist() == [[k, -k] for k in range(3)]
    assert {tuple(e.x) for e in known(node).pending} >= {(0.5, 2.5)}


def test_candidates_that_became_no_trial_come_again():
    node = TCGenerationNode("random", n_trials=6, n_init=4, seed=0)
    client = client_of(node)
    experiment = client._experiment
    node.update_generator_state(experiment, experiment.lookup_data())
    first = [node.get_next_candidate([]) for _ in range(2)]
    node.update_generator_state(experiment, experiment.lookup_data())
    assert [node.get_next_candidate([]) for _ in range(2)] == first
    assert node.get_next_candidate([]) not in first


def test_a_copy_begins_from_the_experiment():
    node = TCGenerationNode(CHEAP, n_trials=8, n_init=4, seed=0)
    client = client_of(node)
    trials = run(client, 5)
    strategy = GenerationStrategy(name="copy", nodes=[copy.deepcopy(node)])
    client.set_generation_strategy(strategy)
    trials += run(client, 2)
    assert len(set(places(trials))) == 7
    assert known(strategy._nodes[0]).archive.observed.all(dim=-1).sum() == 6


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "parameter",
    [
        ChoiceParameter("p", ParameterType.STRING, ["a", "b", "c"], False, sort_values=False),
        RangeParameter("p", ParameterType.FLOAT, 0.1, 0.9, logit_scale=True),
    ],
    ids=["unordered", "logit"],
)
def test_other_parameters_are_refused(parameter):
    client = client_of(TCGenerationNode())
    client._experiment.search_space.add_parameter(parameter)
    message = "needs range parameters without logit scale, ordered choices or fixed.*name='p'"
    with pytest.raises(InvalidInputError, match=message):
        client.get_next_trials(1)


def test_constraints_and_other_objectives_are_refused():
    client = client_of(TCGenerationNode(), outcome_constraints=["mass <= 3"])
    with pytest.raises(InvalidInputError, match=r"no outcome constraints but thresholds.*mass"):
        client.get_next_trials(1)
    for objective in ("-fast", "-fast, -slow, -third", "-fast + 2 slow, -third"):
        client = client_of(TCGenerationNode(), objective=objective.replace("2 slow", "2*slow"))
        with pytest.raises(InvalidInputError, match="two objectives with a metric each"):
            client.get_next_trials(1)
    client = Client()
    client.configure_experiment(parameters=BOX, parameter_constraints=["x + y <= 2"])
    client.configure_optimization(objective="-fast, -slow")
    client.set_generation_strategy(GenerationStrategy(name="TC", nodes=[TCGenerationNode()]))
    with pytest.raises(InvalidInputError, match="a box, without hierarchies and constraints"):
        client.get_next_trials(1)


def test_candidates_come_after_an_update():
    with pytest.raises(ProtocolError, match="update_generator_state must come before"):
        TCGenerationNode().get_next_candidate([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "tc-ehvj"}, "did you mean 'tc-ehvi'"),
        ({"n_trials": 8, "n_init": 9}, "n_init must be at most n_trials = 8, got 9"),
        ({"n_trials": 0}, "n_trials must be an integer >= 1, got 0"),
        ({"n_init": 0.5}, "n_init must be an integer >= 1, got 0.5"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"name": 3}, "name must be a string, got 3"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        TCGenerationNode(**options)
