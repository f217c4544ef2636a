"""The registry: operations, and the one path on which they are called."""

from operad.registry.registry import OperationRegistry

__all__ = ["OperationRegistry"]
