"""Recordings and finished logs, played back on a clock that can be stopped and sped up."""
