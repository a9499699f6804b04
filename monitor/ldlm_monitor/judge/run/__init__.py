"""The state of each run: files, progress, values, stall limit, end, and exported series."""
