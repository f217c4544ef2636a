"""Typed functions as operations, and typed calls of operations."""
