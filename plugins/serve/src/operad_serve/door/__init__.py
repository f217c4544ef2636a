"""The front door: every server of a registry on one address, as `operad serve` runs it."""
