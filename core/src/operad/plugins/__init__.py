"""Plugins: find and check them, and hold their contributions."""
