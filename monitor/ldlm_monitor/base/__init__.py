"""Every type and text that the other houses share: records, names, views, formats, errors."""
