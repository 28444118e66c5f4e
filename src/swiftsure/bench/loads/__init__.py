"""loads: an endpoint under so many users or so many requests a second, one load or ever more of it up to the knee."""
