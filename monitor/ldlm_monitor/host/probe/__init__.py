"""Inspects the processes of a stalled training on this host, read-only."""
