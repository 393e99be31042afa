"""Keeps runs in a database: the schema, the store, the trace, and one module for each kind of database."""
