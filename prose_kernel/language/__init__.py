"""Text in; tree and diagnostics out. Imports nothing of ours but `errors`."""
