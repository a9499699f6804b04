"""Finds the input files and reads what is new in them, as `model.chunk.Chunk`s."""
