"""Two or more runs beside each other: what changed, how sure that is, and what cannot be told."""
