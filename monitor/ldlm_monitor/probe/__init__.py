"""What the host knows of a training that no log tells: read-only, at the edge."""
