"""prose_kernel: write, run, pause, read and regress agent workflows in Jupyter."""

from __future__ import annotations

__version__ = "0.1.0"
