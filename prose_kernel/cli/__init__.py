"""The `prose` command: one module for each subcommand, imported when it is used."""
