"""Gates: records, deciders, and the socket for decisions from outside (docs/reference/openprose.md 5.9 to 5.11)."""
