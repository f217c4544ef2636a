"""Documents in one normal form, whatever their version. Nothing here knows about requests."""
