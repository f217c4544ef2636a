"""The registry: operations, and the one path of their calls."""

from operad.registry.registry import OperationRegistry

__all__ = ["OperationRegistry"]
