"""Sources in a registry: load them, follow their changes, reload them, and close them."""
