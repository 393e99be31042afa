"""State of a run on disk and in memory: layout, binding files, trace, gate records, imported programs."""
