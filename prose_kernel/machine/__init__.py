"""Checked tree in; events out. Async. Knows no Jupyter, no file layout, no HTTP, no subprocess."""
