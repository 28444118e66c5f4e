"""``swiftsure profile``: where a token's time goes."""
