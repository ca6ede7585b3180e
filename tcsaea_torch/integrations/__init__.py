"""This library's strategies inside other tools, each with an extra of its own.

- `tcsaea_torch.integrations.optuna.TCSampler`, a sampler for studies of Optuna;
- `tcsaea_torch.integrations.ax.TCGenerationNode`, a node for generation strategies of Ax.

In these tools a trial ends with both values at once, so tau is 1. For an objective that is
faster than the other, use `tcsaea_torch.Optimizer`, which takes values when they come.
"""
