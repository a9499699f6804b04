"""The monitor: chunks and times in, transitions and snapshots out."""
