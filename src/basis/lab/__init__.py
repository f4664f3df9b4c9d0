"""The paper's tables and figures, computed again from scratch with the priors at hand.

Each is a file in `basis/lab/tables`; a new file is all that a new one takes."""

from __future__ import annotations

from basis.lab.baseline import Average, Baseline, FitOptions
from basis.lab.baselines import BASELINES
from basis.lab.bench import (
    DEFAULT_WAYS,
    WAYS,
    Growth,
    Quality,
    Speed,
    Way,
    average_quality,
    find_way,
    growth_cases,
    markdown,
    measure_growth,
    measure_quality,
    measure_speed,
    plot_quality,
    record,
)
from basis.lab.classifier import Classifier, accuracy, train_classifier
from basis.lab.code_hash import code_hash
from basis.lab.context import Context, MissingRequirement
from basis.lab.definition import SIZES, TableDefinition, load_tables
from basis.lab.features import (
    Comparison,
    FeatureExtractor,
    Features,
    Gaussian,
    ImagePieces,
    KernelDistance,
    RunningGaussian,
    RunningScore,
    Score,
    StreamedComparison,
    compare,
    compare_streams,
    frechet_distance,
    gaussian_of,
    inception_score,
    kernel_distance,
)
from basis.lab.fingerprint import fingerprint
from basis.lab.gan import SD
from basis.lab.inception import (
    INCEPTION,
    NETWORKS,
    InceptionV3,
    fetch_weights,
    load_inception,
    load_network,
    save_classifier,
)
from basis.lab.nes import NES, Regression
from basis.lab.nmf import NMF, ConvNMF
from basis.lab.peers import PEERS, measure_peer
from basis.lab.report import build_report, tables_markdown, write_report
from basis.lab.result_cache import CachedResult, ResultCache
from basis.lab.section import Section

__all__ = [
    "BASELINES",
    "DEFAULT_WAYS",
    "INCEPTION",
    "NES",
    "NETWORKS",
    "NMF",
    "PEERS",
    "SD",
    "SIZES",
    "WAYS",
    "Average",
    "Baseline",
    "CachedResult",
    "Classifier",
    "Comparison",
    "Context",
    "ConvNMF",
    "FeatureExtractor",
    "Features",
    "FitOptions",
    "Gaussian",
    "Growth",
    "ImagePieces",
    "InceptionV3",
    "KernelDistance",
    "MissingRequirement",
    "Quality",
    "Regression",
    "ResultCache",
    "RunningGaussian",
    "RunningScore",
    "Score",
    "Section",
    "Speed",
    "StreamedComparison",
    "TableDefinition",
    "Way",
    "accuracy",
    "average_quality",
    "build_report",
    "code_hash",
    "compare",
    "compare_streams",
    "fetch_weights",
    "find_way",
    "fingerprint",
    "frechet_distance",
    "gaussian_of",
    "growth_cases",
    "inception_score",
    "kernel_distance",
    "load_inception",
    "load_network",
    "load_tables",
    "markdown",
    "measure_growth",
    "measure_peer",
    "measure_quality",
    "measure_speed",
    "plot_quality",
    "record",
    "save_classifier",
    "tables_markdown",
    "train_classifier",
    "write_report",
]
