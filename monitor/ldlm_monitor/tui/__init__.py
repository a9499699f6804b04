"""The screen. Nothing of it is imported before a screen opens."""
