"""What commands print: text, JSON, tables, progress and logs."""
