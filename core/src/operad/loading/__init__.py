"""Sources in a registry: load them, follow their changes, load them again, close them."""
