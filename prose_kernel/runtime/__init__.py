"""What every language's machine stands on: ports, services, values, events, scheduling."""
