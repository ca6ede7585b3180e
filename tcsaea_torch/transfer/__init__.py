"""Knowledge transfer from the fast to the slow objective."""

from tcsaea_torch.transfer.co_surrogate import co_training_set, synthetic_values
from tcsaea_torch.transfer.instance_selection import Interval, half_width, is_believed
from tcsaea_torch.transfer.polynomial import Quadratic, fit_quadratic

__all__ = [
    "Interval",
    "Quadratic",
    "co_training_set",
    "fit_quadratic",
    "half_width",
    "is_believed",
    "synthetic_values",
]
