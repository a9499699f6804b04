"""Runs a training command transparently, watches its log, and acts where a person said so."""
