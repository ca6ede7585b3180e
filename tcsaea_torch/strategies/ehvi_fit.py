import torch
from tcsaea_torch.models.fitting import FitConfig, maximise_likelihood
from tcsaea_torch.models.surrogate import Hyperparameters, condition, scale
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.strategies.ehvi_models import Known, Models, Sizes, choose_rows, distance_from_front


def _fit(cfg, state, name, train_fit, train, refit):
    config = FitConfig(theta_range=(1e-6, 1e3))
    key = f"{name}/theta"
    init = None
    if key in state:
        init = Hyperparameters(theta=state[key])
    no = torch.zeros(train.X.shape[0], dtype=torch.bool)
    if init is None or refit:
        d, s = scale(train_fit, trend=no, input_scaling="unit")
        init = maximise_likelihood(d, s, config, init=init)
    d, s = scale(train, trend=no, input_scaling="unit")
    init = Hyperparameters(theta=init.theta)
    model = condition(d, s, init, nugget=1e-8)
    return model, {key: init.theta}


def learn(cfg, state, run, known: Known):
    step = int(state["step"])
    sizes = Sizes.of(run.d)
    refit = step % cfg.refit_every == 0 or state["stage"] == "start"
    def u(name):
        return uniforms(run.seeds, name, step, known.X.shape[1:2], dtype=run.dtype)
    D_s = known.training_set(SLOW)
    rows = choose_rows(known.slow, known.is_space, known.Y.sum(-1), sizes.condition, u("s"))
    D_s = merge_duplicates(D_s.take(rows)).compact()
    slow, new = _fit(cfg, state, "slow", D_s, D_s, refit)
    state = {**state, **new}
    slow_mean = slow.mean(known.X)
    Y_hat = torch.stack([known.Y[..., FAST], torch.where(known.slow, known.Y[..., SLOW], slow_mean)], dim=-1)
    front = cfg._front(known, known.Y[:, :1], known.both[:, :1] & False)
    distance = distance_from_front(front.scale(Y_hat), front.Y, front.alive)
    D_f = known.training_set(FAST)
    rows = choose_rows(known.fast, known.is_space, distance, sizes.condition, u("f"))
    fit_rows = choose_rows(known.fast, known.is_space, distance, sizes.fit, u("f"))
    train = merge_duplicates(D_f.take(rows)).compact()
    train_fit = merge_duplicates(D_f.take(fit_rows)).compact()
    fast, new = _fit(cfg, state, "fast", train_fit, train, refit)
    state = {**state, **new}
    return Models(fast=fast, slow=slow), state, slow_mean
