"""Stores of samples: one on the grid of a scraper (`series_store`), one of lists of samples."""
