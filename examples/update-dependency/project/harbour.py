"""What the board at the quay shows."""

import tidetable


def board(times, now):
    high = tidetable.next_high(times, now)
    if high is None:
        return "no high water today"
    return f"high water at {high}"
