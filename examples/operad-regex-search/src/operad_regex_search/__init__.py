"""Search operations by regular expression."""
