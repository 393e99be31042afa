"""Text in; tree and diagnostics out. Imports no other part of prose_kernel except `errors`."""
