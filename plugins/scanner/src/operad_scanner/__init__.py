"""Load the operations that the Python files of a folder define."""

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
