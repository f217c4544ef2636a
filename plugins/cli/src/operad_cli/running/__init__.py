"""The registry of a command: its plugins, its sources, the input of a call."""
