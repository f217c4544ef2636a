"""The built-in commands. Their modules import most of operad only when a command runs."""
