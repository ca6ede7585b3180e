"""A run made by hand, the same everywhere, for pictures."""

import math

import torch

from tcsaea_torch import Problem, Result
from tcsaea_torch.events import Record, Status
from tcsaea_torch.types import Objective

N_INIT, N_PERIODS = 6, 8
SLOW_S, FAST_S = 600.0, 120.0


def made(directions=("minimize", "minimize"), quality=1.0, strategy="tc-saea"):
    """Return a run of an initial design and periods of one new and four additional points.

    Its values are those of a circle about the origin, and come ever nearer to it. The state is
    that of TC-SAEA, whose predictions have errors of known size.
    """
    problem = Problem(
        fast=abs, slow=abs, bounds=[[0.0] * 2, [1.0] * 2], tau=5, directions=directions,
        names=["thickness [mm]", "width [mm]"], objective_names=("mass [kg]", "force [kN]"),
        ref_point=[-4.0 if way == "maximize" else 4.0 for way in directions],
    )  # fmt: skip
    Y, history, born, time = [], [], [], 0.0

    def measure(k, with_slow, start):
        angle = 0.5 * math.pi * (0.5 + 0.48 * math.sin(7.0 * k))
        radius = 1.0 + 1.5 * (0.5 + 0.5 * math.cos(3.0 * k)) / (1 + quality * 0.05 * k)
        values = [radius * math.cos(angle), radius * math.sin(angle)]
        Y.append([values[0], values[1] if with_slow else math.nan])
        for objective, seconds in ((Objective.SLOW, SLOW_S), (Objective.FAST, FAST_S)):
            if objective is Objective.FAST or with_slow:
                value = values[objective.column] * float(problem.signs[objective.column])
                history.append(
                    Record(
                        id=len(history),
                        point_id=len(Y) - 1,
                        objective=objective,
                        status=Status.DONE,
                        value=value,
                        asked_at=start,
                        ended_at=start + seconds,
                    )
                )

    for k in range(N_INIT):
        measure(k, True, k * SLOW_S)
        born.append(0)
    time = N_INIT * SLOW_S
    for period in range(1, N_PERIODS + 1):
        measure(len(Y), True, time)
        born.append(0)
        for i in range(4):
            measure(len(Y), False, time + i * FAST_S)
            born.append(period)
        time += SLOW_S
    values = torch.tensor(Y, dtype=torch.float64)
    k = torch.arange(len(Y), dtype=torch.float64)
    is_new = k >= N_INIT
    truth = values[:, 1].nan_to_num(1.2)
    co_error = 0.3 * torch.sin(5 * k) / (1 + 0.1 * k)
    slow_error = 0.5 * torch.cos(2 * k) / (1 + 0.05 * k)
    return Result(
        problem=problem, strategy=strategy, seed=0, all_ids=torch.arange(len(Y)),
        all_X=torch.stack([k / len(Y), 1 - k / len(Y)], dim=-1), all_Y=values * problem.signs,
        n_fast=len(Y), n_slow=N_INIT + N_PERIODS, status="finished", message="",
        history=tuple(history), ref_point=problem.ref_point,
        strategy_state={
            "born": torch.tensor([born]),
            "co_mean": ((truth - values[:, 0] + co_error) * is_new)[None],
            "slow_mean": ((truth + slow_error) * is_new)[None],
            "width": ((0.1 + 0.2 * torch.sin(k).abs()) * is_new)[None],
        },
    )  # fmt: skip
