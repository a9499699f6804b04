"""Numbers, times and untrusted text as people read them."""
