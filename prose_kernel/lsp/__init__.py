"""`prose lsp`: a language server for editors, over what each language says of its texts. It knows no language itself.

Only `server.py` and what it starts import pygls, which comes with the extra `lsp`.
"""
