"""Typed functions as operations."""
