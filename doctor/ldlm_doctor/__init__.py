"""The doctor: known dangerous settings of a training repository, and their repair."""
