import torch
from dataclasses import replace
from tcsaea_torch.models.fitting import FitConfig, maximise_likelihood
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters, condition, scale
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.strategies.ehvi_models import Known, Models, Sizes, choose_rows, distance_from_front

LOG = []

def loo(model):
    f, data = model.factors, model.data
    Ci = torch.cholesky_inverse(f.L)
    G = torch.linalg.solve_triangular(f.FCiF_chol, f.CiF.mT, upper=False)
    Q = Ci.diagonal(dim1=-2, dim2=-1) - (G * G).sum(-2)
    e = f.a / Q
    v = model.variance.unsqueeze(-1) / Q
    live = data.live
    lpd = -0.5 * (e * e / v + v.log())
    return (lpd * live).sum(-1) / live.sum(-1)


def configs(cfg, name):
    out = []
    for k in {"both": ("power-exponential", "additive"), "ard": ("power-exponential",), "add": ("additive",)}[cfg.kernels]:
        kw = {}
        if cfg.nugget is not None:
            kw["nugget"] = cfg.nugget
        if k == "power-exponential":
            kw["theta_range"] = (1e-6, 1e3)
        out.append(FitConfig(kernel=k, options=BFGSOptions(max_evaluations=cfg.max_evaluations), **kw))
    return out

def get(state, key, kernel):
    return Hyperparameters(theta=state[key + "/theta"], kernel=kernel, amplitudes=state.get(key + "/amplitudes"), nugget=state.get(key + "/nugget"))

def _fit(cfg, state, name, train_fit, train, refit):
    no = torch.zeros(train.X.shape[0], dtype=torch.bool)
    new = {}
    models = []
    cs = configs(cfg, name)
    d0, s0 = scale(train_fit, trend=no, input_scaling="unit")
    best = None
    if refit or f"{name}/choice" not in state:
        scores = []
        for c in cs:
            key = f"{name}/{c.kernel}"
            init = get(state, key, c.kernel) if key + "/theta" in state else None
            if init is not None:
                c = replace(c, options=BFGSOptions(max_evaluations=cfg.warm_evaluations))
            h = maximise_likelihood(d0, s0, c, init=init)
            new[key + "/theta"] = h.theta
            if h.amplitudes is not None: new[key + "/amplitudes"] = h.amplitudes
            if h.nugget is not None: new[key + "/nugget"] = h.nugget
            m = condition(d0, s0, h, nugget=c.nugget_for(d0.X.dtype))
            scores.append(float(loo(m)))
        choice = max(range(len(cs)), key=lambda i: scores[i])
        LOG.append((name, scores))
        new[f"{name}/choice"] = choice
    state = {**state, **new}
    c = cs[state[f"{name}/choice"]]
    h = get(state, f"{name}/{c.kernel}", c.kernel)
    d, s = scale(train, trend=no, input_scaling="unit")
    return condition(d, s, h, nugget=c.nugget_for(d.X.dtype)), new


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
