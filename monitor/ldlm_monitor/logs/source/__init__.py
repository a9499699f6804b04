"""Finds the input files and reads what is new in them, as `base.chunk.Chunk`s."""
