"""Formats of numbers and times for people, and the sanitising of untrusted text."""
