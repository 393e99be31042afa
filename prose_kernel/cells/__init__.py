"""The cells of one notebook without Jupyter: magic lines, what they do, and what runs a cell's text."""
