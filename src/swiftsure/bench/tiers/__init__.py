"""bench tiers: what requests cost each other when they share passes, and what it is worth to leave at once."""
