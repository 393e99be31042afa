"""What a session may read, write, run and reach."""
