"""`prose lsp`: a language server for editors, on top of the analysis that each language provides.

Only `server.py` and `language_features.py` import pygls or its types, which come with the extra `lsp`.
"""
