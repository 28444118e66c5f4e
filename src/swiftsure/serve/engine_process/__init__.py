"""The engine in a process of its own. ``protocol.py`` is the only thing that both sides share."""
