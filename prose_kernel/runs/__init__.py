"""Runs: settings, the record of each language, one run and its replay, provenance, freshness."""
