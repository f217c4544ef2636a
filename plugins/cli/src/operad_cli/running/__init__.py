"""The registry of a command: its plugins, its sources, and the input of a call."""
