"""The basis of every language's machine: ports, services, values, events, scheduling."""
