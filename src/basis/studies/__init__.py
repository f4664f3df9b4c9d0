"""Measurements of priors that the paper reports beside its separations."""

from basis.studies._capacity_study import Capacity, capacity_table, measure_capacity
from basis.studies._cost_study import Cost, cost_table, evaluation_cost
from basis.studies._gradient_study import (
    Gradient,
    gradient_norms,
    gradient_table,
    paper_sigmas,
    plot_gradients,
    study_sigmas,
)
from basis.studies._likelihood_study import (
    Likelihoods,
    SeparationCost,
    bits,
    likelihood_table,
    likelihoods,
    separation_cost,
    separation_cost_table,
)
from basis.studies._plausibility_study import (
    Case,
    Flagged,
    flag_cases,
    flagged_table,
    plausibility_cases,
)

__all__ = [
    "Capacity",
    "Case",
    "Cost",
    "Flagged",
    "Gradient",
    "Likelihoods",
    "SeparationCost",
    "bits",
    "capacity_table",
    "cost_table",
    "evaluation_cost",
    "flag_cases",
    "flagged_table",
    "gradient_norms",
    "gradient_table",
    "likelihood_table",
    "likelihoods",
    "measure_capacity",
    "paper_sigmas",
    "plausibility_cases",
    "plot_gradients",
    "separation_cost",
    "separation_cost_table",
    "study_sigmas",
]
