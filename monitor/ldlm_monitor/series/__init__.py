"""The embedded store: what Prometheus would have scraped, on one grid."""
