"""The version, in the one place that everything reads it from."""

__version__ = "0.1.0"
