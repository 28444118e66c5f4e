"""bench: what a user feels, measured on any endpoint with the user's own prompts, and how far each figure can be trusted."""
