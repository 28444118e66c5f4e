"""Drafts: where they come from (``source``, ``lookup``) and which of them the next pass verifies (``planner``)."""
