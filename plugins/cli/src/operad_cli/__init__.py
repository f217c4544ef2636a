"""The ``operad`` command."""
