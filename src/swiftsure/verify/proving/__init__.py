"""``swiftsure prove``: each mode on a workload, and per mode whether it is still the same model and what a user gains."""
