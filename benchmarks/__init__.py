"""Side-by-side measurements. Run from the repository's root, for example ``python -m benchmarks.peers``."""
