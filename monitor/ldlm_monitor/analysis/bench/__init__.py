"""A training command, run, watched and recorded, so that it can be compared with another."""
