import click


@click.command()
def watch() -> None:
    """x"""
