"""`segue completion`: what a shell needs to complete our commands, options and sessions."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a script that teaches your shell to complete segue's commands and sessions.

    \b
    Examples: segue completion bash >> ~/.bashrc
              segue completion zsh >> ~/.zshrc
              segue completion fish > ~/.config/fish/completions/segue.fish
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    root = context.find_root().command
    # Not `source()`: that would first start a shell to ask for its version.
    maker = complete(root, {}, "segue", "_SEGUE_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())
