"""`krt`, also installed as `jupyter-krt`: one file per command, loaded when it is called.

`TABLE` is the list of commands. Each module named there has a `command` made by `frame.command`
(or a group made by `frame.group`) whose short help is the one in the table, so that `krt --help`
loads none of them.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from kernel_runtime.version import __version__

TABLE: dict[str, dict[str, str]] = {
    "Sessions": {
        "new": "Create a session and start its kernel.",
        "ls": "List the sessions and their states.",
        "restart": "Start a new kernel; the old heap is gone.",
        "stop": "End the kernel and keep the session.",
        "rm": "Remove a stopped session for ever.",
        "host": "Start supervisors here, for clients that will not last.",
    },
    "Running": {
        "exec": "Run code, stdin, a .py or a .ipynb; stream its outputs.",
        "wait": "Wait for an execution and print what it printed.",
        "attach": "Open an interactive console on the live session.",
        "answer": "Answer what the session is blocked on.",
        "interrupt": "Interrupt what runs.",
        "spawn": "Start a process that belongs to the session.",
        "term": "Open a terminal that belongs to the session.",
    },
    "Looking": {
        "status": "Reconcile, and show the truth table.",
        "brief": "Print what a worker reads first.",
        "handoff": "Write or show what lets the next worker continue.",
        "claim": "Write down a claim that can be checked, or take one back.",
        "claims": "Check every claim that stands.",
        "ps": "List the session's processes, ports, connections and open files, with what started them.",
        "follow": "Tail the session live, from a cursor on.",
        "log": "Print the journal's entries.",
        "verify": "Check a journal's chain and projections, or an evidence bundle.",
        "export": "Write the session's notebook to a file.",
    },
    "Auditing": {
        "why": "Say which executions made a variable's value.",
        "replay": "Run a record again in a fresh kernel; say what comes out otherwise.",
        "bundle": "Write the session's record to one file that checks itself.",
        "sign": "Vouch for the journal up to now with a key.",
        "anchor": "Write the journal's head down where the session cannot change it.",
        "redact": "Take out of the record what should not have been said.",
        "archive": "Move the journal's past into a sealed file.",
    },
    "Jupyter": {
        "lab": "Start JupyterLab on the sessions, or print its address.",
        "connection": "Print the path of the front-door connection file.",
        "kernelspec": "Let any Jupyter tool start sessions as kernels.",
        "kernel": "Be a kernel to whoever started this (what that kernelspec runs).",
    },
    "Help": {
        "doctor": "Say what is wrong with this installation and how to mend it.",
        "demo": "Show all of it on real data, in two minutes.",
        "completion": "Print the shell's completion script.",
    },
}

COMMANDS = {name: short for section in TABLE.values() for name, short in section.items()}


class Root(click.Group):
    """The group of all commands; imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"kernel_runtime.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in TABLE.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


@click.command(
    cls=Root,
    name="krt",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: krt exec alice --create 'x = 6 * 7; x'",
)
@click.version_option(__version__, prog_name="krt")
def root() -> None:
    """Jupyter sessions that survive everyone.

    A session is a resident kernel, a journal and a notebook. Clients come and go.
    """


def main(argv: list[str] | None = None) -> None:
    """Entry point: runs one command and exits with its status."""
    from kernel_runtime.cli.frame import run

    sys.exit(run(root, sys.argv[1:] if argv is None else argv))
