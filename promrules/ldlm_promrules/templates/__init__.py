"""Go's templates, as Prometheus expands them in labels and annotations."""
