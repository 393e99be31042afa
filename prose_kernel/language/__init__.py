"""The languages: source text to trees and diagnostics. Imports only `errors` from the rest of prose_kernel."""
