"""Files that lie, made from sound ones by seed, and processes that open them under limits.

``python -m hostile_files --help``, with ``src`` and ``tests`` on the import path, runs it alone.
"""
