"""The health report of a run, from a snapshot."""
