import time
import torch
from dataclasses import replace
from tcsaea_torch.models.fitting import FitConfig, Prior, fit
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

KINDS = {"ard": {"theta_range": (1e-6, 1e3)}, "add": {"kernel": "additive"}, "a70": {"kernel": "additive", "starts": (70.0,)},
  "a15": {"kernel": "additive", "p": 1.5}, "a15h": {"kernel": "additive", "p": 1.5, "starts": (5.0, 70.0)}, "pri": {"kernel": "additive"}, "a57": {"kernel": "additive", "starts": (5.0, 70.0)}}

def config(cfg, kind, warm):
    kw = dict(KINDS[kind], options=BFGSOptions(max_evaluations=cfg.warm_evaluations if warm else cfg.max_evaluations))
    if cfg.nugget is not None:
        kw["nugget"] = cfg.nugget
        if cfg.nugget == "fit": kw["nugget_range"] = (cfg.nugget_min, 1.0)
    return FitConfig(**kw)


def group_scores(model, config, train, is_space, mode):
    """LOO log density: mean over space-filling rows plus mean over others."""
    loo = leave_one_out(model)
    z2 = (loo.error**2 / loo.variance)
    ok = train.live & (loo.variance < torch.inf)
    unit = model.scaling.y_scale.unsqueeze(-1) ** 2
    logv = (loo.variance / unit).log()
    out = 0
    def mean(x, m): return torch.where(m, x, 0.0).sum(-1) / m.sum(-1).clamp_min(1)
    factor = mean(z2, ok)
    if mode == "plain":
        for m in (ok & is_space, ok & ~is_space):
            out = out - 0.5 * mean(z2 + logv, m)
    elif mode == "cal":
        for m in (ok & is_space, ok & ~is_space):
            if bool(m.any()): out = out - 0.5 * (mean(logv, m) + mean(z2, m).log())
    else:
        for m in (ok & is_space, ok & ~is_space):
            out = out - mean((loo.error.abs() / unit.sqrt()).clamp_min(1e-6).log(), m)
    return out, factor


def _fit(cfg, state, name, fits, train, is_space, step):
    """fits: dict subset name -> TrainingSet"""
    t0 = time.time()
    no = torch.zeros(train.X.shape[0], dtype=torch.bool)
    store = CACHE.setdefault(name, {})
    for sub, tr in fits.items():
        kinds = {"slow": cfg.kinds_slow, "slow+": cfg.kinds, "fast": cfg.kinds}[name]
        for kind in kinds.split(","):
            if kind == "ard" and (sub == "mixed" or name == "slow+") and name != "slow": continue
            c = config(cfg, kind, False)
            key = (sub, kind)
            old = store.get(key)
            n = int(tr.n_live.max())
            prior = prior_from(cfg, store_fast()) if kind == "pri" else None
            if prior is not None and old is None:
                m = fit(tr, c, trend=no, init=Hyperparameters(theta=prior.log_theta.exp(), kernel="additive", amplitudes=prior.log_amplitudes.exp()), prior=prior)
            elif old is not None:
                if sub == "space" and n < 1.4 * old[2]: continue
                if sub != "space" and step - old[3] < cfg.refit_every: continue
                c2 = config(cfg, kind, True)
                m = fit(tr, c2, trend=no, init=old[1], prior=prior)
            else:
                init = None
                if kind in ("add", "a15"):
                    src = None
                    if sub == "mixed" and name != "slow": src = store.get(("space", kind))
                    if src is None and kind == "a15": src = store.get((sub, "add"))
                    if src is None and name == "slow+": src = CACHE["fast"].get(("space", kind))
                    if src is not None:
                        init = replace(src[1], p=None)
                        c2 = replace(config(cfg, kind, True), options=BFGSOptions(max_evaluations=30))
                m = fit(tr, c if init is None else c2, trend=no, init=init)
            store[key] = (c, m.hyperparameters, n, step)
    t1 = time.time()
    noisy = bool(((train.noise_var > 0) & (train.noise_var < torch.inf)).any())
    best = None
    scores = {}
    data, scaling = scale(train, trend=no, input_scaling="unit")
    kept = CACHE.get(name + "/kept")
    changed = any(st == step for (_, _, _, st) in store.values())
    for key, (c, h, n, st) in store.items():
        if kept is not None and not changed and key != kept[0]: continue
        if not noisy: h = replace(h, variance=None)
        m = condition(data, scaling, h, nugget=c.nugget_for(train.X.dtype))
        if kept is not None and not changed:
            sc, factor = 0.0, kept[1]
        else:
            sc, factor = group_scores(m, c, train, is_space, cfg.score)
            sc = float(sc)
        scores[key] = round(sc, 3)
        if best is None or sc > best[0]: best = (sc, m, key, factor)
    if changed: LOG.append((name, step, scores, best[2]))
    TIMES[name] = TIMES.get(name, 0) + t1 - t0
    TIMES[name + " cond"] = TIMES.get(name + " cond", 0) + time.time() - t1
    CACHE[name + "/kept"] = (best[2], best[3])
    m = best[1]
    if cfg.calibrate and (name != "fast" or cfg.calibrate > 1):
        fac = best[3].clamp(1.0, 100.0)
        m = replace(m, variance=m.variance * fac)
    m.__dict__["choice"] = best[2]
    return m


def store_fast():
    st = CACHE["fast"]
    for k in (("space", "add"), ("space", "a57")):
        if k in st: return st[k][1]

def prior_from(cfg, h):
    a, w = h.amplitudes[:, :-1], h.amplitudes[:, -1:]
    d = a.shape[1]
    r = (d * a).clamp_max(1.0)
    lt = h.theta.log()
    typical = (r * lt).sum(-1, keepdim=True) / r.sum(-1, keepdim=True)
    import math
    return Prior(log_theta=r * lt + (1 - r) * typical, theta_spread=torch.full_like(lt, cfg.prior_theta),
        log_amplitudes=torch.cat([r * a.log() + (1 - r) * -math.log(d), w.log()], dim=-1),
        amplitude_spread=torch.cat([torch.full_like(a, cfg.prior_amp), torch.full_like(w, 2.0)], dim=-1))

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
    if "fast" not in CACHE:
        D0 = known.training_set(FAST)
        rows0 = space_first(known, known.fast, sizes.fit, u("f"))
        t0 = D0.take(rows0).compact()
        _fit(cfg, state, "fast", {"space": t0}, t0, torch.ones_like(t0.y, dtype=torch.bool), step)
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
