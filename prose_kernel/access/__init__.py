"""Permissions to read, write, run and connect: one glob, one path resolver and one grant model for all callers."""
