"""Is it still the same model? ``prove`` answers per mode, with figures."""

from swiftsure.verify.prove import ProveOptions, prove
from swiftsure.verify.result import ModeResult, ProveResult

__all__ = ["ModeResult", "ProveOptions", "ProveResult", "prove"]
