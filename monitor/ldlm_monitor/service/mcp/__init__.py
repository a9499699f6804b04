"""A read-only server of the Model Context Protocol: agents ask the monitor."""
