"""The commands, a module for each group of them. Nothing heavy is imported before a command runs."""
