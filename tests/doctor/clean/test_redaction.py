TOKEN = "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"
