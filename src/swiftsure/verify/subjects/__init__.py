"""What may be a baseline or a candidate: a mode, an endpoint, a model file, or any command. Each answers cases with trials."""
