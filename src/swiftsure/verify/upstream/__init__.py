"""Agreement with the upstream release."""
