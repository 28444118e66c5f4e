"""Swiftsure runs an open-weight language model faster and proves that it is still the same model."""

__version__ = "0.1.0"
