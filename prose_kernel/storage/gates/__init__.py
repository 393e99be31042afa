"""Gates of a run: records, who decides them, and the door through which somebody outside may
(docs/reference/openprose.md 5.9 to 5.11)."""
