"""Plugins: finding them, checking them, holding what they contribute."""
