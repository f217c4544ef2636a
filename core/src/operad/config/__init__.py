"""Configuration: the file operad.toml, its variables, and its tables as attrs classes."""

from operad.lazy import lazily

_HOMES = {
    "operad.config.file": "Configuration PluginOptions RegistryOptions",
    "operad.config.options": "check_options client_tls with_paths",
    "operad.config.reading": "load_configuration",
    "operad.config.structuring": "structure",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
