"""Swiftsure beside other engines: same weights, same token ids, same threads, one run, alternating.

    python -m benchmarks.peers --prepare               # builds what is missing into the cache folder, once
    python -m benchmarks.peers                         # about 18 minutes on two cores
    python -m benchmarks.peers --peers llama_cpp,vllm --contexts 128,1024 --prefill 0 --repeats 1
    python -m benchmarks.peers --python llama_cpp=PATH # uses the environment of that Python instead

Every contender lives in a worker process of its own, started by its own Python, loaded once and idle between its turns. Turns alternate
prompt by prompt and size by size, and the order rotates, so that a slow moment of the machine hits all sides. Reported are medians, and
ratios of neighbouring turns with a 95 % interval. What an engine cannot do, or not within its time, has the reason in its cell.

A peer is one file in ``adapters/``: ``ENVIRONMENT`` (what to install), ``CONTENDERS`` (names, and which plain contender a speculating one
must match), ``open_adapter(variant)`` and, where it needs the model in its own format, ``prepare(place)``. Nothing else knows its name.
"""
