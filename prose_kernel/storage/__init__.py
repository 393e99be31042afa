"""Stores a run: its directory, bindings, journal, trace and gate records, in files, in memory, or in a database."""
