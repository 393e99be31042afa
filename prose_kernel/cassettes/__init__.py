"""Recorded answers of sessions and judges."""
