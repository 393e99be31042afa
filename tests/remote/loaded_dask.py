"""Dask in the process that forks runs, loaded and silenced as a run with workers does it."""

from __future__ import annotations

from prose_kernel.remote import connection

connection._load()
