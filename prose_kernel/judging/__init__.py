"""Deciding conditions: rules, the chain of judges, the person."""
