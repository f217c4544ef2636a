"""The command ``operad`` and its subcommands."""
