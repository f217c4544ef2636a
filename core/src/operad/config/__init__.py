"""Configuration: operad.toml, its variables, and tables made into the attrs classes of whoever owns them."""
