"""Every type that crosses a wall between rooms."""
