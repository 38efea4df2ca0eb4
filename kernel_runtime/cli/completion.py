"""`krt completion`: completion for bash, zsh and fish."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report


@frame.command(
    "completion",
    example='eval "$(krt completion bash)"\nkrt completion fish > ~/.config/fish/completions/krt.fish',
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(*, shell: str, as_json: bool, principal: str | None) -> int:
    """Print the script that completes commands, options and session names in SHELL."""
    del principal
    from click.shell_completion import get_completion_class

    from kernel_runtime.cli import root

    completion = get_completion_class(shell)
    assert completion is not None
    script = completion(root, {}, "krt", "_KRT_COMPLETE").source()
    if as_json:
        report.emit({"shell": shell, "script": script})
    else:
        print(script)
    return 0
