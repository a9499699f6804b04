"""Labels from keywords."""

from ldlm_promrules.samples import Labels, sorted_labels


def make_labels(**pairs: str) -> Labels:
    return sorted_labels(pairs)
