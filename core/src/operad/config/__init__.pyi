# Written by tools/references.py from the table in __init__.py.

from operad.config.file import Configuration as Configuration
from operad.config.file import PluginOptions as PluginOptions
from operad.config.file import RegistryOptions as RegistryOptions
from operad.config.options import check_options as check_options
from operad.config.options import client_tls as client_tls
from operad.config.options import with_paths as with_paths
from operad.config.reading import load_configuration as load_configuration
from operad.config.structuring import structure as structure

__all__ = [
    "Configuration",
    "PluginOptions",
    "RegistryOptions",
    "check_options",
    "client_tls",
    "load_configuration",
    "structure",
    "with_paths",
]
