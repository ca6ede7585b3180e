"""`Planner`: what a strategy has to say about one run."""

import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.asking import NextAction, Wanted, count, first_of, waiting
from tcsaea_torch.events import Asked, HandedOut, Record, RunState, Status
from tcsaea_torch.existing_data import warn_of_few_values
from tcsaea_torch.problem import Problem
from tcsaea_torch.recorder import Recorder
from tcsaea_torch.result import RunStatus
from tcsaea_torch.rng import signed64
from tcsaea_torch.strategies import Proposal, RunView, State, Strategy, check_proposal
from tcsaea_torch.strategies.base import asynchronous, budget
from tcsaea_torch.types import Int, Objective, Tensor


class Planner:
    """Shows a run to its strategy and turns proposals into events.

    Args:
        strategy: The strategy.
        problem: The problem.
        n_slow: Budget of slow evaluations.
        n_init: Size of the initial design.
        seed: Decides all random numbers.
        device: Where to compute.
        dtype: Floating-point type.
    """

    def __init__(
        self,
        strategy: Strategy,
        problem: Problem,
        *,
        n_slow: int,
        n_init: int,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.budget = budget(strategy, problem, n_slow)
        self.waits_for: tuple[int, ...] = ()
        """Ids that the strategy waited for when it last had nothing to propose."""
        self.may_have_ended_at = -1
        """Number of events of a run that was resumed, whose strategy was not asked yet."""
        self._strategy, self._problem, self._n_init = strategy, problem, n_init
        self._asynchronous = asynchronous(strategy)
        self._seed, self._device, self._dtype = seed, device, dtype
        self._exhausted_at = -1
        self._has_warned = False
        # The next step, and how many events had happened when it was found.
        self._thought: tuple[int, tuple[Proposal, State]] | None = None

    def first_state(self) -> RunState:
        """Return the state before the first event."""
        n_fast, n_slow = self.budget
        state = RunState(self._problem, n_fast=n_fast, n_slow=n_slow, strategy_state={})
        state.strategy_state = self._strategy.init(self.view(state))
        return state

    def view(self, state: RunState, wanted: Wanted | None = None) -> RunView:
        """Return what the strategy may know: a batch of one, on the run's device."""
        device, dtype = self._device, self._dtype
        archive = Archive(
            X=state.X.unsqueeze(0).to(device, dtype, copy=True),
            Y=state.Y.unsqueeze(0).to(device, dtype, copy=True),
            observed=state.observed.unsqueeze(0).to(device),
        )
        grid, ref_point = self._problem.grid, self._problem.ref_point
        if ref_point is not None:
            ref_point = (ref_point * self._problem.signs).unsqueeze(0).to(device, dtype)
        return RunView(
            archive=archive,
            pending=state.pending.unsqueeze(0).to(device),
            failed=state.failed.unsqueeze(0).to(device),
            used=torch.tensor([state.used], device=device),
            total=torch.tensor([state.total], device=device),
            n_init=max(0, self._n_init - state.n_attached_complete),
            tau=self._problem.tau,
            seeds=torch.tensor([signed64(self._seed)], device=device),
            grid=None if grid is None else grid.to(device, dtype),
            ref_point=ref_point,
            wanted=None if wanted is None else self._numbers(wanted).unsqueeze(0),
        )

    # ------------------------------------------------------------------ steps

    def hand_out(self, run: Recorder, wanted: Wanted | None) -> list[Record]:
        """Return evaluations that can be decided now, and record that they were handed out.

        Args:
            run: The run.
            wanted: How many of each objective there may be; None: all that wait, or else the
                strategy's next step.
        """
        if wanted is None and not run.state.to_hand_out:
            return self._propose(run)
        chosen = list(waiting(run.state)) if wanted is None else self._gather(run, wanted)
        if chosen:
            run.record(HandedOut(ids=tuple(record.id for record in chosen)))
        return chosen

    def _propose(self, run: Recorder) -> list[Record]:
        """Return the evaluations of the strategy's next step, if there is anything in it."""
        n_before = len(run.state.records)
        step = self._step(run)
        if step is not None:
            run.record(step)
        return run.state.records[n_before:]

    def _gather(self, run: Recorder, wanted: Wanted) -> list[Record]:
        """Return as many evaluations as are wanted, as far as the strategy has them."""
        while True:
            chosen = first_of(waiting(run.state), wanted)
            found = count(chosen)
            lacking = {o: n - found[o] for o, n in wanted.items()}
            step = self._step(run, lacking) if any(lacking.values()) else None
            if step is None:
                return chosen
            run.record(step)

    def _step(self, run: Recorder, wanted: Wanted | None = None) -> Asked | None:
        """Return the strategy's next step as an event; None if there is nothing in it.

        Args:
            run: The run.
            wanted: How many evaluations there are free workers for, which only an
                asynchronous strategy is told; None: a step of its own size.
        """
        if wanted is None or self._asynchronous is None:
            proposal, strategy_state = self._own_step(run)
        else:
            view = self.view(run.state, wanted)
            if not bool((torch.minimum(self._offers(run, view), self._numbers(wanted)) > 0).any()):
                return None
            proposal, strategy_state = self._think(run, view)
        if proposal.is_empty:
            return None
        if not self._has_warned:
            self._has_warned = True  # where warnings are errors, too
            known = run.state.observed | run.state.pending
            self._has_warned = warn_of_few_values(strategy_state, known, stacklevel=6)
        again = proposal.archive_mask
        return Asked(
            X=proposal.X[0].detach().to(device="cpu", dtype=torch.float64),
            evaluation_mask=proposal.evaluation_mask[0].cpu(),
            archive_mask=None if again is None else again[0].cpu(),
            strategy_state=strategy_state,
            queued=wanted is not None,
        )

    def _numbers(self, wanted: Wanted) -> Int[Tensor, "2"]:
        return torch.tensor([wanted[o] for o in Objective], device=self._device)

    def _offers(self, run: Recorder, view: RunView) -> Int[Tensor, "2"]:
        """Return how many evaluations an asynchronous strategy would propose now."""
        assert self._asynchronous is not None
        return self._asynchronous.offers(run.state.strategy_state, view)[0]

    def _own_step(self, run: Recorder) -> tuple[Proposal, State]:
        """Return a step of the strategy's own size, thought out once for each state of the run."""
        if self._thought is None or self._thought[0] != len(run.events):
            self._thought = len(run.events), self._think(run, self.view(run.state))
        return self._thought[1]

    def _think(self, run: Recorder, view: RunView) -> tuple[Proposal, State]:
        """Let the strategy propose, check it, and note what an empty proposal means."""
        proposal, strategy_state = self._strategy.propose(run.state.strategy_state, view)
        check_proposal(self._strategy.name, proposal, view)
        self.waits_for = ()
        if proposal.is_empty:
            if not view.pending.any():
                self._exhausted_at = len(run.events)
            if proposal.waits_for is not None:
                wanted = proposal.waits_for[0].cpu()
                self.waits_for = tuple(
                    r.id
                    for r in run.state.records
                    if r.status is Status.PENDING and wanted[r.point_id, r.objective.column]
                )
        return proposal, strategy_state

    # ------------------------------------------------------------------ where the run stands

    def next_action(self, run: Recorder) -> NextAction:
        """Say what a scheduler may do now, see `Optimizer.next_action`."""
        n, more = count(waiting(run.state)), [0, 0]
        if self._asynchronous is None and not any(n.values()):
            more = self._own_step(run)[0].n_asked[0].tolist()
        elif self._asynchronous is not None and not self._is_exhausted(run):
            more = self._offers(run, self.view(run.state)).tolist()
        n_fast, n_slow = (n[o] + more[o.column] for o in (Objective.FAST, Objective.SLOW))
        if n_fast or n_slow:
            return NextAction(kind="ask", n_fast=n_fast, n_slow=n_slow, waits_for=())
        kind = "wait" if bool(run.state.pending.any()) else "stop"
        waits_for = self.waits_for if kind == "wait" else ()
        return NextAction(kind=kind, n_fast=0, n_slow=0, waits_for=waits_for)

    def status(self, run: Recorder) -> RunStatus:
        """Say whether a run goes on, is finished, or has nothing left to propose."""
        state = run.state
        if bool(state.pending.any()) or state.to_hand_out:
            return "running"
        is_spent = state.used[1] >= state.total[1]
        # Fast calls are left: only the strategy knows whether it has a use for them.
        if is_spent and state.used[0] < state.total[0] and not self._is_exhausted(run):
            return "running" if self.next_action(run).kind == "ask" else "finished"
        if not is_spent and self.may_have_ended_at == len(run.events):
            self.next_action(run)
        if is_spent:
            return "finished"
        return "exhausted" if self._is_exhausted(run) else "running"

    def _is_exhausted(self, run: Recorder) -> bool:
        """Whether the strategy had nothing to propose, and nothing has happened since."""
        return self._exhausted_at == len(run.events)
