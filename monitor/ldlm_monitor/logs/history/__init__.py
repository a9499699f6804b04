"""Bytes that files held before: when each was written, and which files belong together."""
