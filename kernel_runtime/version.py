"""The version, where any layer can read it without importing the package's front."""

__version__ = "0.1.0"
