"""What is known of hyper-parameters before data are seen."""

from dataclasses import dataclass

from tcsaea_torch.correlations import KernelName
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_instance, describe


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior(Indexed):
    """What is known of the additive hyper-parameters of `b` models before data are seen.

    Their logarithms are normally distributed, independently. Nothing is known where a spread
    is inf.
    """

    log_theta: Float[Tensor, "b d"]
    """Expected ln theta, in scaled units."""
    theta_spread: Float[Tensor, "b d"]
    """Standard deviations of ln theta."""
    log_amplitudes: Float[Tensor, "b d1"]
    """Expected ln a_k and ln w."""
    amplitude_spread: Float[Tensor, "b d1"]
    """Standard deviations of ln a_k and ln w."""


def check_prior(prior: Prior, kernel: KernelName, *, b: int, d: int) -> None:
    """Refuse a prior for another kernel, or for other models.

    Raises:
        InvalidInputError: Naming the field, what was expected and what came.
    """
    check_instance("prior", prior, Prior)
    if kernel != "additive":
        raise InvalidInputError(f"prior must be None with kernel {kernel!r}, got a Prior")
    shapes = {
        "log_theta": (b, d), "theta_spread": (b, d),
        "log_amplitudes": (b, d + 1), "amplitude_spread": (b, d + 1),
    }  # fmt: skip
    for name, shape in shapes.items():
        value = getattr(prior, name)
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            raise InvalidInputError(
                f"prior.{name} must be a tensor of shape {shape}, got {describe(value)}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Penalty(Indexed):
    """Minus the logarithm of a normal prior of the optimiser's vector."""

    centre: Float[Tensor, "b v"]
    precision: Float[Tensor, "b v"]
    """0 where nothing is known."""

    def __call__(self, v: Float[Tensor, "b v"]) -> tuple[Float[Tensor, " b"], Float[Tensor, "b v"]]:
        """Return it and its slope."""
        difference = v - self.centre
        slope = difference * self.precision
        return 0.5 * (difference * slope).sum(dim=-1), slope
