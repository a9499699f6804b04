"""Two or more runs beside each other: what changed, and with which confidence."""
