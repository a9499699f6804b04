"""The daemon: discovers live files, reads and judges them, and sends alerts."""
