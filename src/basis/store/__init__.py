"""Priors on disk: cards, weights, and the names under which they are found."""

from basis.families import describe_module
from basis.store._adding import add_prior
from basis.store._architectures import build_module
from basis.store._card_files import CARD, read_card, update_card
from basis.store._convert import convert_glow, convert_ncsn
from basis.store._hub import hub_name
from basis.store._loading import load_prior
from basis.store._lookup import EMBEDDED, PriorEntry, find_prior, list_priors, split_classes
from basis.store._saving import save_prior, write_prior
from basis.store._weight_files import WEIGHTS

__all__ = [
    "CARD",
    "EMBEDDED",
    "WEIGHTS",
    "PriorEntry",
    "add_prior",
    "build_module",
    "convert_glow",
    "convert_ncsn",
    "describe_module",
    "find_prior",
    "hub_name",
    "list_priors",
    "load_prior",
    "read_card",
    "save_prior",
    "split_classes",
    "update_card",
    "write_prior",
]
