"""`adsum watch`: every change of who is there, as it happens."""

from __future__ import annotations

import click


@click.command()
def watch() -> None:
    """x"""
