"""The types of operations in Python, for type checkers."""
