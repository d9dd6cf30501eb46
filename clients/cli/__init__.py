"""The command `adsum`: everything a person types."""

from .app import main

__all__ = ["main"]
