"""Tasks at hand: a suite that runs offline on small models, results of others read in, and both paired item by item."""
