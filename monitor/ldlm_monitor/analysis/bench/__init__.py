"""Runs and records a training command, so that it can be compared with others."""
