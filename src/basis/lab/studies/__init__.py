"""Measurements of priors that the paper reports beside its separations."""

from __future__ import annotations

from basis.lab.studies.calibration_study import (
    Calibration,
    calibration,
    calibration_table,
    exact_calibrations,
    plot_calibration,
)
from basis.lab.studies.capacity_study import Capacity, capacity_table, measure_capacity
from basis.lab.studies.cost_study import Cost, cost_table, evaluation_cost
from basis.lab.studies.gradient_study import (
    Gradient,
    gradient_norms,
    gradient_table,
    paper_sigmas,
    plot_gradients,
    study_sigmas,
)
from basis.lab.studies.likelihood_study import (
    Likelihoods,
    SeparationCost,
    bits,
    likelihood_table,
    likelihoods,
    separation_cost,
    separation_cost_table,
)
from basis.lab.studies.plausibility_study import (
    Case,
    Flagged,
    flag_cases,
    flagged_table,
    plausibility_cases,
)
from basis.lab.studies.weights_study import (
    WeightErrors,
    counts_table,
    random_weights,
    weight_errors,
    weights_table,
)

__all__ = [
    "Calibration",
    "Capacity",
    "Case",
    "Cost",
    "Flagged",
    "Gradient",
    "Likelihoods",
    "SeparationCost",
    "WeightErrors",
    "bits",
    "calibration",
    "calibration_table",
    "capacity_table",
    "cost_table",
    "counts_table",
    "evaluation_cost",
    "exact_calibrations",
    "flag_cases",
    "flagged_table",
    "gradient_norms",
    "gradient_table",
    "likelihood_table",
    "likelihoods",
    "measure_capacity",
    "paper_sigmas",
    "plausibility_cases",
    "plot_calibration",
    "plot_gradients",
    "random_weights",
    "separation_cost",
    "separation_cost_table",
    "study_sigmas",
    "weight_errors",
    "weights_table",
]
