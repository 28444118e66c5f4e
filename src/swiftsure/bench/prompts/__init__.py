"""What is asked: the built-in prompts, a user's own, the nonce that makes one cold and the long text that is pasted above it."""
