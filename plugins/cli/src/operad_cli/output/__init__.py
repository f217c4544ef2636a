"""The output of commands: text, JSON, tables, progress and logs."""
