"""The protocol of a round: which cells it has, what is kept of it on disk, and how it goes on after a kill."""
