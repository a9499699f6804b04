"""What the host shows of a training and no log contains: read-only, at the edge."""
