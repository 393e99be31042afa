"""Imported programs: reads them from files and registries, asks for consent, keeps the lock file."""
