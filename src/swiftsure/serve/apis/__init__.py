"""The interfaces: one file or folder each, with a ``router(service)``. They share jobs and errors, never each other's wire formats."""
