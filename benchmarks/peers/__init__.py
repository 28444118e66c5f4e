"""Swiftsure beside other engines: same file, same token ids, same threads, one run, alternating.

    python -m benchmarks.peers                         # builds what is missing into the cache folder
    python -m benchmarks.peers --python llama_cpp=PATH # uses the environment of that Python instead

Every contender lives in a worker process of its own, started by its own Python, loaded once and idle between its turns. Turns alternate
prompt by prompt, and the order rotates with every repeat, so that a slow moment of the machine hits all sides. Reported are medians, and
ratios of neighbouring turns with a 95 % interval.

A peer is one file in ``adapters/``: ``ENVIRONMENT`` (what to install), ``CONTENDERS`` (names, and which plain contender a speculating one
must match) and ``open_adapter(variant)``. Nothing else knows its name.
"""
