"""Rivals from other libraries, run from the same definitions as strategies: `peer:NAME`."""

import warnings
from dataclasses import dataclass

from benchmarks.micro.peers import MissingPeerError
from benchmarks.peers import base, hvkg, optuna, pymoo, qlognehvi
from benchmarks.peers.base import PeerResult, Search
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.validation import check_choice

PREFIX = "peer:"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A search, and the packages that it is made of."""

    search: Search
    packages: tuple[str, ...]

    def __call__(
        self,
        problem: TestProblem,
        seed: int,
        n_slow: int,
        n_init: int,
        time_limit: float | None = None,
    ) -> PeerResult:
        """Run it once.

        Args:
            problem: A continuous problem.
            seed: Seed of all that is random.
            n_slow: Slow evaluations; as many fast ones, or, for a peer that evaluates one
                objective at a time, floor(tau n_slow).
            n_init: Size of the initial design.
            time_limit: Seconds; it then ends as soon as it can, with what it has.

        Raises:
            MissingPeerError: If a package is not installed.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are the peer's own affair
                return base.run(self.search, problem, seed, n_slow, n_init, time_limit)
        except MissingPeerError as error:
            raise MissingPeerError(f"{error}: pip install 'tcsaea-torch[bench]'") from error


PEERS = {
    "qlognehvi": Peer(search=qlognehvi.search, packages=("botorch",)),
    "hvkg": Peer(search=hvkg.search, packages=("botorch", "pymoo")),
    "nsga2": Peer(search=pymoo.search_nsga2, packages=("pymoo",)),
    "rvea": Peer(search=pymoo.search_rvea, packages=("pymoo",)),
    "tpe": Peer(search=optuna.search_tpe, packages=("optuna",)),
    "optuna-gp": Peer(search=optuna.search_gp, packages=("optuna", "scipy")),
}


def get(name: str) -> Peer:
    """Return the peer of this name.

    Raises:
        InvalidInputError: If the name is unknown; the nearest one is suggested.
    """
    return PEERS[check_choice("peer", name, PEERS)]
