"""What a session may read, write, run and reach: one glob, one path resolver, one grant model for every door."""
