"""Print shell completion scripts: `segue completion`."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a script that lets your shell complete commands, options and sessions.

    \b
    Examples: segue completion bash >> ~/.bashrc
              segue completion zsh >> ~/.zshrc
              segue completion fish > ~/.config/fish/completions/segue.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    completion = completion_class(context.find_root().command, {}, "segue", "_SEGUE_COMPLETE")
    # `source()` would first start a shell to ask for its version.
    click.echo(completion.source_template % completion.source_vars())
