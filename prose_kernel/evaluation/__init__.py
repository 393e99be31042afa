"""`prose eval`: run variants of a program over a data set, with assertions, statistics and a baseline."""
