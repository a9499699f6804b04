"""An older place of `Chunk`; see `ldlm_monitor.monitor`."""
