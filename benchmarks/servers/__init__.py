"""Swiftsure's server beside other engines' servers: the same model, prompts, lengths and machine, alternating in one run."""
