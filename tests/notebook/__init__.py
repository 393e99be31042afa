"""A package, because Jupyter Notebook, which the browser tests use, has a package of this name as well."""
