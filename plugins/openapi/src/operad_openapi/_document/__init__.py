"""What a document says, in one normal form, whatever its version. It knows no requests."""
