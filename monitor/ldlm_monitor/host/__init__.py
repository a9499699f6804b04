"""What this machine knows and does."""
