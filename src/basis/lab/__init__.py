"""The paper's tables and figures computed again, benchmarks, baselines and image distances.

The tables are listed here without importing torch, so that `basis lab reproduce --help` answers at
once. Everything else is in the modules of this subpackage, for example `basis.lab.bench`.
"""

from __future__ import annotations

TABLES: dict[str, tuple[str, str]] = {
    "teaser": ("figures", "Four digits in one image"),
    "mnist-agnostic": ("mnist", "MNIST, class-agnostic pairs"),
    "mnist-split": ("mnist", "MNIST, class-split pairs"),
    "cifar-agnostic": ("photos", "CIFAR-10, class-agnostic pairs"),
    "cifar-agnostic-samples": ("photos", "CIFAR-10, class-agnostic pairs, one sample of each"),
    "cifar-split": ("photos", "CIFAR-10, animals with vehicles"),
    "cifar-split-samples": ("photos", "CIFAR-10, animals with vehicles, one sample of each"),
    "photo-methods": ("photos", "Methods for photos: close to the truth, or like photos"),
    "colorization": ("photos", "Colorization of grey photos"),
    "class-priors": ("conditions", "Priors conditioned on the classes of each source"),
    "scenes": ("conditions", "Churches mixed with bedrooms"),
    "histogram": ("figures", "PSNR of single mixtures"),
    "ablation": ("mnist", "Ablation: annealing and noise"),
    "gradients": ("priors", "Norm of the gradient over the noise levels"),
    "likelihoods": ("priors", "Bits per dimension of images and of separated sources"),
    "cost": ("priors", "Operations and seconds of one evaluation"),
    "calibration": ("uncertainty", "Coverage of posterior intervals"),
    "plausibility": ("uncertainty", "Wrong mixtures reported as implausible"),
    "alphas": ("uncertainty", "Unknown mixing coefficients"),
    "counts": ("uncertainty", "Unknown number of sources"),
    "states": ("figures", "States along the annealing"),
    "uncurated": ("figures", "Uncurated separations"),
}
"""Every table and figure in the order of the report: the module in `basis.lab.tables` that computes
it, in the function of the same name (with underscores), and its title."""

__all__ = ["TABLES"]
