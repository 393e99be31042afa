"""Load and silence Dask in the process that forks runs, as a run with workers does."""

from __future__ import annotations

from prose_kernel.remote import connection

connection._load()
