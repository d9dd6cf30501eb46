import click


@click.command()
def register() -> None:
    """x"""
