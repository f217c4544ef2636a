"""Plugins: find them, check them, hold what they contribute."""
