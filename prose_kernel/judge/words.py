"""The words a script or a person answers a condition with, case-folded."""

YES = frozenset(("y", "yes", "true"))
NO = frozenset(("n", "no", "false"))
UNCERTAIN = frozenset(("u", "uncertain", "unknown"))
STUCK = frozenset(("no progress", "no-progress"))
