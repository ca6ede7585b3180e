import time
import torch
from dataclasses import replace
from tcsaea_torch.models.fitting import FitConfig, fit
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters, condition, scale
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.transfer import LinkConfig, fit_links, believe, condition_links
from tcsaea_torch.models.leave_one_out import leave_one_out
from tcsaea_torch.strategies.ehvi_models import Known, Models, Sizes, choose_rows, distance_from_front

LOG = []
TIMES = {}
CACHE = {}

def configs(cfg, warm):
    out = []
    for k in {"both": ("power-exponential", "additive"), "ard": ("power-exponential",), "add": ("additive",)}[cfg.kernels]:
        kw = {"kernel": k, "options": BFGSOptions(max_evaluations=cfg.warm_evaluations if warm else cfg.max_evaluations)}
        if cfg.nugget is not None:
            kw["nugget"] = cfg.nugget
            if cfg.nugget == "fit": kw["nugget_range"] = (cfg.nugget_min, 1.0)
        if k == "power-exponential":
            kw["theta_range"] = (1e-6, 1e3)
        out.append(FitConfig(**kw))
    return out

def group_scores(model, config, train, is_space):
    """LOO log density: mean over space-filling rows plus mean over others."""
    loo = leave_one_out(model)
    z2 = (loo.error**2 / loo.variance)
    ok = train.live & (loo.variance < torch.inf)
    unit = model.scaling.y_scale.unsqueeze(-1) ** 2
    lpd = -0.5 * (z2 + (loo.variance / unit).log())
    out = 0
    for m in (ok & is_space, ok & ~is_space):
        out = out + torch.where(m, lpd, 0.0).sum(-1) / m.sum(-1).clamp_min(1)
    return out


def _fit(cfg, state, name, fits, train, is_space, step):
    """fits: dict subset name -> TrainingSet"""
    t0 = time.time()
    no = torch.zeros(train.X.shape[0], dtype=torch.bool)
    store = CACHE.setdefault(name, {})
    for sub, tr in fits.items():
        for c in configs(cfg, False):
            key = (sub, c.kernel)
            old = store.get(key)
            n = int(tr.n_live.max())
            if old is not None:
                if sub == "space" and n < 1.4 * old[2]: continue
                if sub != "space" and step - old[3] < cfg.refit_every: continue
                c2 = [x for x in configs(cfg, True) if x.kernel == c.kernel][0]
                m = fit(tr, c2, trend=no, init=old[1])
            else:
                m = fit(tr, c, trend=no)
            store[key] = (c, m.hyperparameters, n, step)
    t1 = time.time()
    noisy = bool(((train.noise_var > 0) & (train.noise_var < torch.inf)).any())
    best = None
    scores = {}
    data, scaling = scale(train, trend=no, input_scaling="unit")
    for key, (c, h, n, st) in store.items():
        if not noisy: h = replace(h, variance=None)
        m = condition(data, scaling, h, nugget=c.nugget_for(train.X.dtype))
        sc = float(group_scores(m, c, train, is_space))
        scores[key] = round(sc, 3)
        if best is None or sc > best[0]: best = (sc, m, key)
    LOG.append((name, step, scores, best[2]))
    TIMES[name] = TIMES.get(name, 0) + t1 - t0
    TIMES[name + " cond"] = TIMES.get(name + " cond", 0) + time.time() - t1
    best[1].__dict__["choice"] = best[2]
    return best[1]


def space_first(known, live, n, u):
    ok = live & known.is_space
    k = u.masked_fill(~ok, torch.inf).argsort(dim=1)
    m = min(n, int(ok.sum()))
    return k[:, :m]

def learn(cfg, state, run, known: Known):
    step = int(state["step"])
    if step == 1: CACHE.clear()
    sizes = Sizes.of(run.d)
    refit = step % cfg.refit_every == 0 or state["stage"] == "start"
    def u(name):
        return uniforms(run.seeds, name, step, known.X.shape[1:2], dtype=run.dtype)
    D_s = known.training_set(SLOW)
    rows = choose_rows(known.slow, known.is_space, known.Y.sum(-1), sizes.condition, u("s"))
    D_s = merge_duplicates(D_s.take(rows)).compact()
    sp_rows = known.is_space.gather(1, rows)
    live0 = known.slow.gather(1, rows)
    order = (~live0).to(torch.int8).argsort(dim=1, stable=True)[:, :D_s.X.shape[1]]
    sp_s = sp_rows.gather(1, order)
    slow = _fit(cfg, state, "slow", {"mixed": D_s}, D_s, sp_s, step)
    slow_mean, slow_var = slow.predict(known.X)
    link = None
    if cfg.link:
        t0 = time.time()
        old = CACHE.get("link")
        n_both = int(known.both.sum())
        if old is None or n_both >= cfg.link_growth * old[1]:
            sur = slow
            loo = leave_one_out(sur)
            full = known.Y[..., SLOW].clone()
            idx = known.slow[0].nonzero().squeeze(-1)
            err = torch.zeros_like(full); err[0, idx] = loo.error[0]
            var_all = torch.zeros_like(full); var_all[0, idx] = loo.variance[0]
            loo = replace(loo, error=err, variance=var_all)
            link = fit_links(known.X, known.Y[..., FAST], known.Y[..., SLOW], known.both, loo, LinkConfig())
            CACHE["link"] = (link, n_both)
            LOG.append(("link", int(link.choice[0]), [round(v, 2) for v in link.score[0].tolist()]))
        link = CACHE["link"][0]
        link = condition_links(link, known.X, known.Y[..., FAST], known.Y[..., SLOW], known.both)
        TIMES["link"] = TIMES.get("link", 0) + time.time() - t0
    if link is not None and bool((link.choice >= 0).any()):
        m_l, v_l = link.predict(known.X, known.Y[..., FAST])
        v_l = believe(slow_mean, slow_var, m_l, v_l, belief=4.0, slow_square=link.slow_square)
        noise = torch.where(known.slow, 0.0, torch.where(known.fast, v_l * cfg.link_noise, torch.inf))
        y = torch.where(known.slow, known.Y[..., SLOW], torch.where(noise < torch.inf, m_l, 0.0))
        Y_hat = torch.stack([known.Y[..., FAST], y], dim=-1)
        front = cfg._front(known, known.Y[:, :1], known.both[:, :1] & False)
        distance = distance_from_front(front.scale(Y_hat), front.Y, front.alive)
        train_all = TrainingSet(X=known.X, y=y, noise_var=noise)
        live = noise < torch.inf
        near = torch.where(known.slow, -torch.inf, distance)
        rows = choose_rows(live, known.is_space | known.slow, distance, sizes.condition, u("s2"))
        fit_rows = space_first(known, live, sizes.fit, u("s2"))
        train = merge_duplicates(train_all.take(rows)).compact()
        train = train_all.take(rows)
        fits = {"space": train_all.take(fit_rows).compact(), "mixed": train_all.take(choose_rows(live, known.is_space | known.slow, distance, 300, u("s2"))).compact()}
        slow = _fit(cfg, state, "slow+", fits, train, known.is_space.gather(1, rows), step)
        slow_mean, slow_var = slow.predict(known.X)
    Y_hat = torch.stack([known.Y[..., FAST], torch.where(known.slow, known.Y[..., SLOW], slow_mean)], dim=-1)
    front = cfg._front(known, known.Y[:, :1], known.both[:, :1] & False)
    distance = distance_from_front(front.scale(Y_hat), front.Y, front.alive)
    D_f = known.training_set(FAST)
    rows = choose_rows(known.fast, known.is_space, distance, sizes.condition, u("f"))
    fit_rows = space_first(known, known.fast, sizes.fit, u("f"))
    train = merge_duplicates(D_f.take(rows)).compact()
    train = D_f.take(rows)
    fits = {"space": D_f.take(fit_rows).compact(), "mixed": D_f.take(choose_rows(known.fast, known.is_space, distance, 300, u("f"))).compact()}
    fast = _fit(cfg, state, "fast", fits, train, known.is_space.gather(1, rows), step)
    return Models(fast=fast, slow=slow), state, slow_mean
