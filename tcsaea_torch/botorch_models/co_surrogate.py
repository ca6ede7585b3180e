"""`CoSurrogateModel`: both objectives as one BoTorch model, with the transfer inside.

It is an ordinary `ModelListGP` of two Kriging models, so every acquisition function for several
objectives takes it. The slow one also learns from synthetic values: where only the fast
objective is known, a learned link tells the slow one, with a variance that says how far it is
to be believed. Where no link proves itself, it learns from measured values alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model

from tcsaea_torch.botorch_models.fitting import Data, default_kriging, fit
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.transfer.links import Angle, Autoregressive, Difference, LinkConfig, LogRatio
from tcsaea_torch.transfer.slow_from_fast import SlowFromFast
from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import check_instance, check_sequence, describe

_LINK_NAMES = {
    Difference: "difference",
    LogRatio: "ratio",
    Angle: "angle",
    Autoregressive: "autoregressive",
}
_MIN_ROWS_TO_CHOOSE = 10
"""With fewer rows, cross-validation cannot tell kernels apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Synthetic:
    """Slow values that a link told, at points of which only the fast value is known."""

    X: Float[Tensor, "k d"]
    """Points, in the user's units."""
    y: Float[Tensor, " k"]
    """Slow values, in the user's sign; anything where it is not believed."""
    noise_var: Float[Tensor, " k"]
    """Their variances; inf where the link says nothing, or measured values contradict it."""

    @property
    def is_believed(self) -> Bool[Tensor, " k"]:
        """Which of them the slow model learned from."""
        return self.noise_var < torch.inf


class CoSurrogateModel(ModelListGP):
    """A model of (fast, slow) objectives, for BoTorch's acquisition functions.

    `CoSurrogateModel.fit` makes one:

        model = CoSurrogateModel.fit(train_X, train_Y, bounds)
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model, ref_point=ref_point, X_baseline=train_X[train_Y.isfinite().all(dim=-1)]
        )

    Outputs are in the sign of the values that it was fitted to. Conditioning on further values,
    as fantasies do, keeps hyper-parameters, link and synthetic values; a fast value alone then
    tells nothing of the slow one, so fit anew when results arrive.

    Args:
        *gp_models: A model of the fast objective, and one of the slow.
        link: See the attribute.
        slow_from_fast: Likewise.
        synthetic: Likewise.

    Attributes:
        link: Name of the link between the objectives; None: none has proved itself, or there is
            no point of which only the fast value is known.
        slow_from_fast: The fitted link, which can predict slow values at points of the unit cube
            with known minimised fast values; None without one.
        synthetic: The slow values that it told; None without one.

    Raises:
        InvalidInputError: If these are not two models.
    """

    def __init__(
        self,
        *gp_models: Any,
        link: str | None = None,
        slow_from_fast: SlowFromFast | None = None,
        synthetic: Synthetic | None = None,
    ) -> None:
        if len(gp_models) != 2 or not all(isinstance(model, Model) for model in gp_models):
            found = ", ".join(map(describe, gp_models)) or "none"
            raise InvalidInputError(
                f"gp_models must be a BoTorch Model of the fast and one of the slow, got {found}; "
                "see CoSurrogateModel.fit"
            )
        super().__init__(*gp_models)
        self.link, self.slow_from_fast, self.synthetic = link, slow_from_fast, synthetic

    @classmethod
    def fit(
        cls,
        train_X: Tensor,
        train_Y: Tensor,
        bounds: Any = None,
        *,
        maximize: bool = True,
        link: LinkConfig | None = LinkConfig(),  # noqa: B008  it is frozen
        kriging: Sequence[FitConfig] | None = None,
        objective_lower_bounds: Sequence[float | None] = (None, None),
    ) -> "CoSurrogateModel":
        """Fit both models, and the link between them.

        Rows at the same point are merged, those without any value left out. Values count as
        exact; for noisy ones let `kriging` hold configurations with `nugget="fit"`.

        Args:
            train_X: Points `n x d`, in the user's units, float32 or float64.
            train_Y: Their values `n x 2` (fast, slow); NaN where not measured.
            bounds: Box of the points, `2 x d`; None: the unit cube.
            maximize: Whether values are better the larger they are, as BoTorch's acquisition
                functions have it. Then a minimisation problem's are passed with their signs
                changed, and the model's outputs are so, too. Links look at minimised values.
            link: Which links are tried, and when one is used; None: no transfer.
            kriging: How models are fitted: of several configurations the one that predicts best is
                taken. None: a joint and an additive kernel, each with a small fitted nugget.
            objective_lower_bounds: Below which no minimised value of (fast, slow) lies; None: 0, as
                long as no minimised value is negative.

        Raises:
            InvalidInputError: If an argument is wrong, or an objective has no value at all.
            FitError: If a correlation matrix cannot be factorised.
        """
        data = Data.of(train_X, train_Y, bounds, maximize=maximize)
        if link is not None:
            check_instance("link", link, LinkConfig)
        configs = default_kriging(data.X.shape[-1]) if kriging is None else kriging
        configs = check_sequence("kriging", configs)
        for config in configs:
            check_instance("kriging", config, FitConfig)
        low = data.lower_bound(objective_lower_bounds)

        fast_rows, slow_rows = data.observed.unbind(dim=-1)
        exact = torch.zeros_like(data.Y[:, 0])
        fast = fit(data.U, data.Y[:, 0], exact, fast_rows, configs)
        fast = data.model(fast, data.Y[:, 0], exact, fast_rows)
        # Few rows: leave-one-out errors would promise far too much.
        is_few = int(slow_rows.sum()) < _MIN_ROWS_TO_CHOOSE
        some = configs[:1] if is_few else configs
        own = fit(data.U, data.Y[:, 1], exact, slow_rows, some, cross_validates=not is_few)
        alone = fast_rows & ~slow_rows
        found = None
        if link is not None and bool(alone.any()):
            found = data.link(own, link, low)
        if found is None or link is None:
            return cls(fast, data.model(own, data.Y[:, 1], exact, slow_rows))
        y, noise_var = data.joined(own, found, link.belief)
        rows = noise_var < torch.inf
        joined = fit(data.U, y, noise_var, rows, configs) if bool(rows[alone].any()) else own
        slow = data.model(joined, y, noise_var, rows)
        way = found.ways[int(found.choice)]
        return cls(
            fast,
            slow,
            link=_LINK_NAMES[type(way)],
            slow_from_fast=found,
            synthetic=Synthetic(
                X=data.X[alone], y=data.sign * y[alone], noise_var=noise_var[alone]
            ),
        )

    def condition_on_observations(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Tensor | list[Tensor], Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> "CoSurrogateModel":
        """Return a model with more rows and the same hyper-parameters, link and synthetic values.

        Args:
            X: `*batch x q x d` points in the user's units; or a list of two, for (fast, slow).
            Y: `*batch x q x 2` values in the user's sign; NaN where not measured.
            noise: `*batch x q x 2` variances; None: values are exact.
            **kwargs: None are known.

        Raises:
            InvalidInputError: If an argument is wrong.
        """
        if not isinstance(Y, Tensor) or Y.ndim < 2 or Y.shape[-1] != 2:
            raise InvalidInputError(f"Y must have shape (*batch, q, 2), got {describe(Y)}")
        points = [X, X] if isinstance(X, Tensor) else X
        noise = torch.zeros_like(Y) if noise is None else noise.expand_as(Y)
        noise = noise.masked_fill(Y.isnan(), torch.inf)
        models = [
            model.condition_on_observations(  # type: ignore[operator]
                x, Y[..., i : i + 1], noise=noise[..., i : i + 1], **kwargs
            )
            for i, (model, x) in enumerate(zip(self.models, points, strict=True))
        ]
        return type(self)(
            *models,
            link=self.link,
            slow_from_fast=self.slow_from_fast,
            synthetic=self.synthetic,
        )

    def subset_output(self, idcs: list[int]) -> Model:
        """Return the model of one objective, or of both in another order.

        Args:
            idcs: Of the outputs: 0, the fast one, and 1.
        """
        if [i % 2 for i in idcs] == [0, 1]:
            return self
        return ModelListGP(*self.models).subset_output(idcs)  # type: ignore[arg-type]
