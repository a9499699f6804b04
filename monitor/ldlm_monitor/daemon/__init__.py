"""Live files: discovery, reading, judging, sending."""
