"""What every command shares: `--json` and `--as`, an example in its help, exit status, errors.

A command returns its exit status (None is 0) or raises. Exit status:

    0  well                                   5  died, unknown, aborted or interrupted
    1  the cell raised                        6  still running when the time was up; it goes on
    2  usage                                  7  blocked on input
    3  no such session, notebook, execution   8  status is not all live
    4  refused, nothing was run               9  integrity failure
    70 our bug      130 Ctrl-C before anything was asked      141 whoever read our output has left
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from kernel_runtime.cli import report
from kernel_runtime.errors import InternalFault, KernelRuntimeError, UsageError

OUTCOME_STATUS = {"ok": 0, "error": 1, "interrupted": 5, "aborted": 5, "died": 5, "unknown": 5}
STILL_RUNNING = 6
BLOCKED = 7
NOT_ALL_LIVE = 8
INTEGRITY = 9

Callback = Callable[..., int | None]


class ReaderLeft(Exception):
    """Whoever read our output has gone."""


class Command(click.Command):
    """A command with an example; its callback gets the caller's `as_json` and `principal`."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="JSON on stdout, errors too."),
            click.Option(
                ["--as", "principal"],
                metavar="PRINCIPAL",
                help="Who acts, e.g. agent:planner; KRT_PRINCIPAL by default.",
            ),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderLeft from error  # click would call it a failure of ours

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"  {line}\n")


def command(name: str, *, example: str, short: str | None = None) -> Callable[[Callback], Command]:
    """Make a command of a function; its docstring is the help."""
    from kernel_runtime.cli import COMMANDS

    make = click.command(
        name=name,
        cls=Command,
        example=example,
        short_help=short or COMMANDS.get(name),
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def decorate(callback: Callback) -> Command:
        made = make(callback)
        assert isinstance(made, Command)
        return made

    return decorate


def session_argument(function: Callback) -> Callback:
    """The NAME argument, completed from the sessions there are."""
    decorated: Callback = click.argument("name", shell_complete=_complete_session)(function)
    return decorated


def _complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from kernel_runtime.client import session_files

    return [name for name in session_files.names() if name.startswith(incomplete)]


def run(root: click.Command, argv: list[str]) -> int:
    """Run one command line; its exit status."""
    as_json = "--json" in argv
    try:
        status = root.main(args=argv, prog_name="krt", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "krt"
        return report.failed(UsageError(error.format_message(), hint=f"`{usage} --help`"), as_json=as_json)
    except KernelRuntimeError as error:
        return report.failed(error, as_json=as_json)
    except (ReaderLeft, BrokenPipeError):
        # that is a detach, and Python must not complain of it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, click.Abort):
        print("krt: interrupted; nothing in the session was changed by that", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the last line of defence: told as our bug, with its traceback
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            return report.failed(
                UsageError(
                    "the directory this was started in is gone, and a path was relative to it",
                    hint="cd to one that exists",
                ),
                as_json=as_json,
            )
        import traceback

        traceback.print_exc()
        fault = InternalFault(
            f"{type(error).__name__}: {error}",
            hint="a bug in krt: the traceback says where; please report it",
        )
        return report.failed(fault, as_json=as_json)


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        return True
    return False
