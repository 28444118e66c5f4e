"""Finished answers computed once more in mode default, while nobody waits.

``cases.py``: which answers, and the bounded queue of them. ``auditor.py``: when they are replayed, and what follows from one that differs.
``replayer.py``: the process that replays. ``record.py``: the file that a difference leaves.
"""
