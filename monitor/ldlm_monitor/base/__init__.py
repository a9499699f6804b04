"""The types that the other rooms (subpackages) pass to each other."""
