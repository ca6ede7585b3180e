"""Evolutionary search as pure functions of tensors."""

from tcsaea_torch.evolution.clustering import kmeans
from tcsaea_torch.evolution.reference_vectors import adapt, simplex_lattice
from tcsaea_torch.evolution.rvea import Population, RVEAConfig, rvea
from tcsaea_torch.evolution.selection import apd_select
from tcsaea_torch.evolution.variation import Draws, Variation, polynomial_mutation, sbx, vary

__all__ = [
    "Draws",
    "Population",
    "RVEAConfig",
    "Variation",
    "adapt",
    "apd_select",
    "kmeans",
    "polynomial_mutation",
    "rvea",
    "sbx",
    "simplex_lattice",
    "vary",
]
