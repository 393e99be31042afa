"""Programs that a program imports: from files, from registries; consent and the lock file."""
