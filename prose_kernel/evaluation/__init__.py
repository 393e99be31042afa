"""`prose eval`: a program over a data set, variants side by side, assertions, statistics, a baseline."""
