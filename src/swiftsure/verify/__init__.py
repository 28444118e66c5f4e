"""Is it still the same model? ``prove`` answers per mode, with figures."""

from swiftsure.verify.proving.prove import ProveOptions, prove
from swiftsure.verify.proving.result import ModeResult, ProveResult

__all__ = ["ModeResult", "ProveOptions", "ProveResult", "prove"]
