"""Knowledge transfer from the fast to the slow objective."""

from tcsaea_torch.transfer.co_surrogate import co_training_set, synthetic_values
from tcsaea_torch.transfer.domain_adaptation import TCA, coral_factor, find_points, most_certain
from tcsaea_torch.transfer.instance_selection import Interval, half_width, is_believed
from tcsaea_torch.transfer.links import LinkConfig
from tcsaea_torch.transfer.parameter_transfer import (
    SwarmConfig,
    blend,
    distance_correlation,
    select_variables,
)
from tcsaea_torch.transfer.polynomial import Quadratic, fit_quadratic
from tcsaea_torch.transfer.slow_from_fast import (
    LearnedLink,
    SlowFromFast,
    believe,
    combine,
    fit_links,
)

__all__ = [
    "TCA",
    "Interval",
    "LearnedLink",
    "LinkConfig",
    "Quadratic",
    "SlowFromFast",
    "SwarmConfig",
    "believe",
    "blend",
    "co_training_set",
    "combine",
    "coral_factor",
    "distance_correlation",
    "find_points",
    "fit_links",
    "fit_quadratic",
    "half_width",
    "is_believed",
    "most_certain",
    "select_variables",
    "synthetic_values",
]
