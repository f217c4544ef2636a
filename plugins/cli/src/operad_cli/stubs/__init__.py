"""Python types of operations, for type checkers."""
