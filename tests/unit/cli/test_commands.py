"""The command line as a whole: every command has what every command must have, and is documented."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from kernel_runtime.cli import COMMANDS, frame, main, report, root
from kernel_runtime.client import session_files
from kernel_runtime.errors import HeapLost, KernelStartFailed

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"


def command(name: str) -> click.Command:
    found = import_module(f"kernel_runtime.cli.{name}").command
    assert isinstance(found, click.Command)
    return found


def leaves() -> list[tuple[str, click.Command]]:
    """Every command that can be called, with the words that call it."""
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        top = command(name)
        if isinstance(top, click.Group):
            found += [(f"{name} {sub}", leaf) for sub, leaf in top.commands.items()]
        else:
            found.append((name, top))
    return found


def section(words: str) -> str:
    """The part of docs/cli.md on one command."""
    parts = re.split(r"^#+ ", DOCS.read_text(), flags=re.MULTILINE)
    found = [part for part in parts if re.match(rf"`krt {words}[ `]", part)]
    assert len(found) == 1, f"docs/cli.md has {len(found)} sections `krt {words}`"
    return found[0]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.mark.parametrize("words, leaf", leaves(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_is_documented_with_its_options_and_an_example(words: str, leaf: click.Command) -> None:
    text = section(words)
    for option in leaf.params:
        if isinstance(option, click.Option) and option.name not in ("as_json", "principal", "help"):
            assert any(name in text for name in option.opts), (
                f"krt {words} {option.opts} is not in docs/cli.md"
            )
        if isinstance(option, click.Argument):
            assert str(option.human_readable_name) in text.split("\n")[0]
    assert "```" in text
    assert f"krt {words}" in text.split("```")[1]


@pytest.mark.parametrize("words, leaf", leaves(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_has_json_a_principal_and_an_example_in_its_help(
    words: str, leaf: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, *words.split(), "--help")
    assert status == 0
    assert "--json" in out
    assert "--as PRINCIPAL" in out
    assert f"krt {words.split(maxsplit=1)[0]}" in out.split("Example:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    assert command(name).get_short_help_str(200) == COMMANDS[name]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in COMMANDS)


def test_every_exit_status_is_documented() -> None:
    text = DOCS.read_text()
    for status in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 130, 141):
        assert re.search(rf"^\| {status} \|", text, re.MULTILINE), f"exit status {status}"


@pytest.mark.parametrize(
    "argv, status, says",
    [
        (("exec",), 2, "NAME"),
        (("exec", "alice", "x", "--timeout", "soon"), 2, "timeout"),
        (("exce", "alice"), 2, "did you mean 'exec'"),
        (("ls", "--frob"), 2, "--frob"),
        (("exec", "a b", "x"), 2, "session name"),
        (("exec", "nobody", "x"), 3, "nobody"),
        (("status", "nobody"), 3, "krt new nobody"),
        (("log", "nobody"), 3, "nobody"),
        (("new", "alice", "--kernel", "no-such"), 2, "python3"),
        (("wait", "alice", "id", "--key", "k"), 2, "both given"),
        (("completion", "tcsh"), 2, "tcsh"),
    ],
)
def test_errors_have_their_exit_status_and_a_next_step(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], status: int, says: str
) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (status, "")
    assert says in err
    assert err.startswith("krt: ")
    assert "next: " in err


def test_errors_are_documents_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "exec", "nobody", "x", "--json")
    error = json.loads(out)["error"]
    assert (code, err) == (3, "")
    assert (error["type"], error["session"]) == ("NoSuchSession", "nobody")
    assert error["message"]
    assert error["hint"]
    code, out, _ = run(capsys, "exec", "--json")
    assert (code, json.loads(out)["error"]["type"]) == (2, "UsageError")


def test_our_own_bug_is_told_as_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("kernel_runtime.client.overview.sessions", broken)
    code, out, err = run(capsys, "ls", "--json")
    assert code == 70
    assert json.loads(out)["error"]["type"] == "InternalFault"
    assert "Traceback" in err


def test_a_directory_that_is_gone_is_no_bug_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """getcwd fails in a directory that was removed; told as the place it is, on whatever command needs it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    session_files.create("a", cwd=tmp_path)
    for words in (["new", "b"], ["export", "a", "x.ipynb"]):
        code, _, told = run(capsys, *words)
        assert code == 2
        assert "is gone" in told
        assert "Traceback" not in told


def test_a_lost_heap_is_shown_as_the_table_of_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        {"cell_id": "c", "truth": "lost", "outcome": "ok", "execution_id": "e",
         "evidence": {"source": "df = load()", "ran_in": 1, "current": 2}}
    ]  # fmt: skip
    lost = HeapLost("the heap of session alice is gone", hint="--accept", report={"cells": cells})
    assert report.failed(lost, as_json=False) == 4
    err = capsys.readouterr().err
    assert re.search(r"lost +ok +df = load\(\) +ran in incarnation 1, now 2", err)
    assert err.rstrip().endswith("next: --accept")


def test_d53_a_kernel_that_dies_at_start_is_shown_with_its_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    failed = KernelStartFailed("session alice: it died", hint="mend it", stderr="Traceback\n\x1b[31mboom")
    assert report.failed(failed, as_json=False) == 4
    err = capsys.readouterr().err
    assert "    Traceback\n    \N{REPLACEMENT CHARACTER}[31mboom\n" in err


def test_what_is_shown_of_a_session_cannot_drive_the_terminal() -> None:
    assert (
        report.clean("a\x1b]0;title\x07b\r\nc\td").replace("\N{REPLACEMENT CHARACTER}", "?")
        == "a?]0;title?b?\nc\td"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_completion_for(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    status, out, _ = run(capsys, "completion", shell)
    assert status == 0
    assert "_KRT_COMPLETE" in out


def test_session_names_are_completed() -> None:
    from click.shell_completion import ShellComplete

    from kernel_runtime.client import session_files

    session_files.create("alice")
    session_files.create("bob")
    complete = ShellComplete(root, {}, "krt", "_KRT_COMPLETE")
    assert [item.value for item in complete.get_completions(["exec"], "al")] == ["alice"]
    assert [item.value for item in complete.get_completions([], "sta")] == ["status"]


def test_ls_of_nothing_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "ls")
    assert (status, out) == (0, "no sessions yet\n")
    assert "krt new" in err
    assert run(capsys, "ls", "--json")[1] == "[]\n"


def test_outcomes_have_the_exit_status_of_the_interface() -> None:
    assert frame.OUTCOME_STATUS == {
        "ok": 0, "error": 1, "interrupted": 5, "aborted": 5, "died": 5, "unknown": 5,
    }  # fmt: skip
