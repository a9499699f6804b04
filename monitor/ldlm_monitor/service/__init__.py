"""Commands, daemon, servers and receivers: the edge."""
