"""The terminal screen. A command imports this package only when it opens a screen."""
