"""What two trials of one case have in common: to the bit, within a tolerance, and as distributions of the next token."""
