"""Whatever happens in whatever order: a replay of the events gives the state of the run."""

import copy
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tcsaea_torch import Optimizer, Problem, Status
from tcsaea_torch.events import Attached, RunState, fold
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies import Proposal, RunView, State

POOL = torch.tensor([[0.0, -3.0], [1.0, 2.0], [5.0, 0.5], [0.0, -1.0]], dtype=torch.float64)
VALUES = [-2.0, 0.0, 0.5, 3.0]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Propose two points, and in turn an idle row or a fast one after them.

    With an idle row, the slow value of an earlier fast one is asked for.
    """

    name: str = "steps"

    def init(self, run: RunView) -> State:
        return {"step": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        step = int(state["step"])
        n = min(2, int(run.left.amin()))
        X = uniforms(run.seeds, "steps", step, (3, run.d))
        mask = torch.zeros(1, 3, 2, dtype=torch.bool)
        mask[:, :n] = True
        mask[:, 2, 0] = step % 2 == 1 and int(run.left[0, 0]) > n
        touched = run.archive.observed | run.pending | run.failed
        lacks = run.archive.observed[..., 0] & ~touched[..., 1]
        is_first = lacks & (lacks.cumsum(dim=1) == 1)
        again = torch.zeros_like(touched)
        again[..., 1] = is_first & (step % 2 == 0) & (run.left[:, 1:] > n)
        proposal = Proposal(X=X, evaluation_mask=mask, archive_mask=again)
        return proposal, {"step": step + 1}


def make_optimizer():
    problem = Problem(
        fast=abs, slow=abs, bounds=[[0.0, -3.0], [1.0, 3.0]], tau=1.5,
        directions=("minimize", "maximize"),
    )  # fmt: skip
    return Optimizer(problem, n_slow=9, n_init=2, strategy=Steps())


def snapshot(state):
    """Copy all that a state says about its run."""
    return copy.deepcopy(
        {
            "X": state.X,
            "X_user": state.X_user,
            "Y": state.Y,
            "observed": state.observed,
            "pending": state.pending,
            "failed": state.failed,
            "used": state.used,
            # repr: NaN equals NaN there.
            "records": [repr(record) for record in state.records],
            "to_hand_out": list(state.to_hand_out),
            "strategy_state": state.strategy_state,
            "n_attached_complete": state.n_attached_complete,
        }
    )


def is_same(a, b):
    return a.keys() == b.keys() and all(
        torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key]
        for key in a
    )


def act(optimizer, action):
    """Do one random thing that the protocol allows, and return the ids that are handed out."""
    kind, k, value = action
    if kind in ("ask", "ask for some"):
        numbers = (None, 0, 1, 2, 3) if kind == "ask for some" else (None,)
        n_fast, n_slow = numbers[k % len(numbers)], numbers[k // 5 % len(numbers)]
        return [e.id for e in optimizer.ask(n_fast=n_fast, n_slow=n_slow)]
    if kind == "attach":
        known = torch.cat([POOL, optimizer._state.X_user])
        columns = [[value, VALUES[k % 4]], [value, None], [None, value]][k % 3]
        fast, slow = ([v] for v in columns)
        optimizer.attach(known[k % len(known)].unsqueeze(0), fast=fast, slow=slow)
    else:
        records = optimizer.result().history
        open_ids = [r.id for r in records if r.status is Status.PENDING]
        if kind == "tell":
            # A late value counts, unless a retry has brought one.
            open_ids += [
                r.id
                for r in records
                if r.status is Status.FAILED and not is_known(optimizer._state.observed, r)
            ]
        if not open_ids:
            return []
        id = open_ids[k % len(open_ids)]
        if kind == "tell":
            optimizer.tell(id, value)
        else:
            optimizer.fail(id, f"reason {k}", retry=kind == "retry")
    return []


def is_known(observed, record):
    return bool(observed[record.point_id, record.objective.column])


def check_laws(optimizer, state):
    """Check what holds at any time, whatever happened."""
    signs = optimizer.problem.signs
    stacked = torch.stack([state.observed, state.pending, state.failed]).int()
    assert (stacked.sum(dim=0) <= 1).all()
    assert (state.Y[~state.observed] == 0).all()
    for column, objective in enumerate(("fast", "slow")):
        n_records = sum(r.objective == objective for r in state.records)
        assert state.used[column] <= min(n_records, state.total[column])
    told: dict[tuple[int, int], list[float]] = {}
    for record in state.records:
        if record.status is Status.DONE:
            told.setdefault((record.point_id, record.objective.column), []).append(record.value)
    for (row, column), values in told.items():
        assert state.observed[row, column]
        assert state.Y[row, column] * signs[column] in values
    pending = {
        (r.point_id, r.objective.column)
        for r in state.records
        if r.status is Status.PENDING and not is_known(state.observed, r)
    }
    assert pending == {tuple(index) for index in state.pending.nonzero().tolist()}
    for event in optimizer.events:
        if isinstance(event, Attached):
            at = (state.X_user == event.X).all(dim=-1)
            for column in (0, 1):
                minimised = event.Y[0, column] * signs[column]
                found = at & state.observed[:, column] & (state.Y[:, column] == minimised)
                assert minimised.isnan() or found.any()


actions = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask for some", *["tell"] * 3, "fail", "retry", "attach"]),
        st.integers(0, 60),
        st.sampled_from(VALUES),
    ),
    min_size=5,
    max_size=40,
)


@pytest.mark.filterwarnings("ignore:1 of 1 attached points lie outside the bounds")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(actions)
def test_a_replay_of_any_beginning_gives_the_state_of_that_time(actions):
    optimizer = make_optimizer()
    live, handed_out = {0: snapshot(optimizer._state)}, []
    for action in [("ask for some", 6 + len(actions) % 18, 0.0), *actions]:
        handed_out += act(optimizer, action)
        assert len(set(handed_out)) == len(handed_out)
        open_ids = [r.id for r in optimizer.result().history if r.status is Status.PENDING]
        assert [e.id for e in optimizer.pending] == [id for id in open_ids if id in handed_out]
        assert list(optimizer._state.to_hand_out) == [id for id in open_ids if id not in handed_out]
        live[len(optimizer.events)] = snapshot(optimizer._state)
    check_laws(optimizer, optimizer._state)

    def fresh():
        n_fast, n_slow = optimizer.n_total
        return RunState(optimizer.problem, n_fast=n_fast, n_slow=n_slow, strategy_state={"step": 0})

    for k, expected in live.items():
        assert is_same(snapshot(fold(fresh(), optimizer.events[:k])), expected)
    # Step by step is the same as at once.
    state, n = fresh(), len(optimizer.events)
    fold(fold(state, optimizer.events[: n // 2]), optimizer.events[n // 2 :])
    assert is_same(snapshot(state), live[n])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([*VALUES, None]), min_size=40, max_size=40), st.data())
def test_the_order_of_telling_does_not_matter(outcomes, data):
    def final(shuffle):
        optimizer = make_optimizer()
        while evaluations := optimizer.ask():
            for evaluation in data.draw(st.permutations(evaluations)) if shuffle else evaluations:
                value = outcomes[evaluation.id]
                if value is None:
                    optimizer.fail(evaluation.id, f"no {evaluation.id}")
                else:
                    optimizer.tell(evaluation.id, value)
        state = snapshot(optimizer._state)
        state["records"] = [
            (r.id, r.point_id, r.objective, r.status, repr(r.value), r.reason)
            for r in optimizer._state.records
        ]
        return optimizer, state

    (optimizer, told_in_order), (_, shuffled) = final(False), final(True)
    assert is_same(told_in_order, shuffled)
    assert optimizer.result().status == "finished"
    assert optimizer.n_used[1] == 9
