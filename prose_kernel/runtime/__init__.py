"""The code shared by the machines of both languages: ports, services, values, events, scheduling."""
