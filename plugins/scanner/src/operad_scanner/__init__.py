"""A folder of Python files as operations."""

from operad_scanner.fs import LocalFS, ScannerFS
from operad_scanner.scan import OperationManifest, ScanFailure, scan_operations
from operad_scanner.source import ScannerConfig

__all__ = [
    "LocalFS",
    "OperationManifest",
    "ScanFailure",
    "ScannerConfig",
    "ScannerFS",
    "scan_operations",
]
