"""The `prose` command: its subcommands are imported when they are used."""
