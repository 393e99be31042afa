"""VVM: text in, tree and diagnostics out."""
