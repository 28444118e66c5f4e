"""Generation within a grammar: what may be asked for, how it is compiled, and the sampler that keeps to it."""
