"""Compares two or more runs: which quantities changed, and with which confidence."""
