"""The embedded series store: the samples that a Prometheus would have scraped, on one grid."""
