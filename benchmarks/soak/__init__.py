"""A server under mixed traffic for long, and under many connections at once: what is left of it afterwards."""
