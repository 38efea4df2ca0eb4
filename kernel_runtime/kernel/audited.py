"""What an audit event says about the world: each event of the table becomes an effect, or nothing.

An effect is `(kind, how, ((field, value), …))` of plain strings and numbers, so that equal ones merge.
The arguments of an event are the user's objects. Nothing of theirs is run here: what is not exactly
a string, a number or a path of the standard library is named by its type. Nothing here opens, starts
or connects anything either, so no event comes of looking at one.

An event is raised before the operation, so it tells what was attempted.
"""

from __future__ import annotations

import _socket
import os
import posixpath
from collections.abc import Callable
from pathlib import PosixPath, PurePosixPath
from socket import AF_INET, AF_INET6, AF_UNIX, AddressFamily
from typing import Any

from kernel_runtime.core.masking import mask_argv, mask_text

Effect = tuple[str, str, tuple[tuple[str, Any], ...]]
Describe = Callable[[tuple[Any, ...]], Effect | None]

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
"""flags that make an `open` more than reading"""
_TEXT = 500
_WORDS = 40
_UNMASKED = 1 << 14
"""what is masked before it is cut: a secret cut in two is not recognised"""
_DEVICES = frozenset(
    f"/dev/{name}" for name in ("null", "zero", "full", "tty", "stdout", "stderr", "random", "urandom")
)
_OURS = frozenset(("KRT_EXECUTION",))

# As they were before any cell: a program may replace what stands in os.
_getcwd, _readlink, _fsdecode, _fspath = os.getcwd, os.readlink, os.fsdecode, os.fspath
_join, _normpath = posixpath.join, posixpath.normpath


def type_name(value: object) -> str:
    """The name of a value's class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def text(value: Any) -> str:
    """A string, bytes, path or number of the user's as a string; anything else by its type."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bytes:
        return _fsdecode(value)
    if kind is int:
        return int.__repr__(value)
    if kind is PosixPath or kind is PurePosixPath or kind is os.DirEntry:
        return _fsdecode(_fspath(value))
    if issubclass(kind, str):
        return str.__str__(value)
    return f"<{type_name(value)}>"


def absolute(value: Any, directory: Any = -1) -> str:
    """A path as a full one, as text: links in it are not followed. A descriptor becomes its file."""
    if type(value) is int:
        return descriptor(value)
    path = text(value)
    if path.startswith(("/", "<")):
        return _normpath(path)
    try:
        base = _getcwd() if type(directory) is not int or directory < 0 else descriptor(directory)
    except FileNotFoundError:  # the working directory itself was removed
        return path
    return _normpath(_join(base, path))


def descriptor(fd: int) -> str:
    """What a descriptor is open on, or its number."""
    try:
        return _readlink(f"/proc/self/fd/{fd:d}")
    except OSError:
        return f"descriptor {fd:d}"


def argv(words: Any) -> list[str]:
    """A command line, masked and cut; a string is a shell's."""
    kind = list if issubclass(type(words), list) else tuple if issubclass(type(words), tuple) else None
    if kind is None:
        return [_cut(mask_text(text(words)[:_UNMASKED]))]
    count = kind.__len__(words)
    shown = mask_argv([text(word)[:_UNMASKED] for word in kind.__getitem__(words, slice(_WORDS + 1))])
    if count > _WORDS:
        shown[_WORDS:] = [f"… {count} words"]
    return [_cut(word) for word in shown]


def address(family: int, where: Any) -> tuple[tuple[str, Any], ...]:
    """A socket's address: host and port, or the path of a Unix socket."""
    if family == AF_UNIX:
        path = text(where)
        return (("family", "unix"), ("path", path.replace("\0", "@") if path[:1] == "\0" else path))
    if family in (AF_INET, AF_INET6) and type(where) is tuple and len(where) >= 2:
        port = where[1] if type(where[1]) is int else text(where[1])
        return (
            ("family", "inet" if family == AF_INET else "inet6"),
            ("host", text(where[0])),
            ("port", port),
        )
    known = AddressFamily._value2member_map_.get(family)
    return (("family", known.name[3:].lower() if known else str(family)), ("address", text(where)))


def _cut(value: str) -> str:
    return value if len(value) <= _TEXT else value[:_TEXT] + "…"


# -- files


def _file(how: str, path: str, *more: tuple[str, Any]) -> Effect | None:
    if path in _DEVICES or (path.endswith("/__pycache__") and how == "mkdir"):
        return None
    if "/__pycache__/" in path and ".pyc" in path:  # an import keeps what it compiled
        return None
    return ("file", how, (("path", _cut(path)), *more))


def _open(args: tuple[Any, ...]) -> Effect | None:
    path, mode, flags = args
    if flags & os.O_APPEND:
        how = "append"
    elif flags & os.O_EXCL and flags & os.O_CREAT:
        how = "create"
    elif flags & os.O_RDWR and not flags & os.O_TRUNC:
        how = "update"
    else:
        how = "write"
    if mode is None and type(path) is not int and not (given := text(path)).startswith("/"):
        # os.open: beside which directory the event does not say, since dir_fd is not in it
        return _file(how, given, ("cwd", absolute(".")))
    return _file(how, absolute(path))


def _on_path(how: str, directory: int = 1) -> Describe:
    """`(path, …)`, with a dir_fd at that index if there are so many."""

    def describe(args: tuple[Any, ...]) -> Effect | None:
        return _file(how, absolute(args[0], args[directory] if len(args) > directory else -1))

    return describe


def _from_to(how: str) -> Describe:
    """`(source, destination[, source_dir_fd, destination_dir_fd])`."""

    def describe(args: tuple[Any, ...]) -> Effect | None:
        source, target = args[0], args[1]
        here, there = (args[2], args[3]) if len(args) > 3 else (-1, -1)
        return _file(how, absolute(source, here), ("to", _cut(absolute(target, there))))

    return describe


def _to(how: str) -> Describe:
    """`(source, destination)`: the source is only read."""

    def describe(args: tuple[Any, ...]) -> Effect | None:
        return _file(how, absolute(args[1]), ("from", _cut(absolute(args[0]))))

    return describe


def _symlink(args: tuple[Any, ...]) -> Effect | None:
    return _file("symlink", absolute(args[1], args[2]), ("to", _cut(text(args[0]))))


def _make_archive(args: tuple[Any, ...]) -> Effect | None:
    return _file("archive", absolute(args[0]), ("format", text(args[1])))


def _unpack_archive(args: tuple[Any, ...]) -> Effect | None:
    return _file("unpack", absolute("." if args[1] is None else args[1]), ("from", _cut(absolute(args[0]))))


def _sqlite(args: tuple[Any, ...]) -> Effect | None:
    name = text(args[0])
    if name in {"", ":memory:"} or (
        name.startswith("file:") and ("mode=memory" in name or "mode=ro" in name)
    ):
        return None
    return ("database", "sqlite", (("path", _cut(name if name.startswith("file:") else absolute(name))),))


# -- hosts


def _on_socket(how: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> Effect | None:
        sock, where = args[0], args[1]
        if not issubclass(type(sock), _socket.socket) or where is None:
            return None
        # the C member: a subclass may have put anything in the attribute's place
        family: int = _socket.socket.family.__get__(sock)
        return ("socket", how, address(family, where))

    return describe


def _host(protocol: str) -> Describe:
    """`(self, host, port)`."""

    def describe(args: tuple[Any, ...]) -> Effect | None:
        port = args[2] if type(args[2]) is int else text(args[2])
        return ("host", protocol, (("host", _cut(mask_text(text(args[1])))), ("port", port)))

    return describe


def _url(how: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> Effect | None:
        url = text(args[0])[:_UNMASKED]
        if url.startswith(("file:", "data:")):
            return None
        method = (("method", text(args[3])),) if len(args) > 3 and args[3] is not None else ()
        return ("url", how, (("url", _cut(mask_text(url))), *method))

    return describe


# -- processes


def _process(how: str, words: int, *, folder: int | None = None) -> Describe:
    """The argv is at that index, a working directory perhaps at another."""

    def describe(args: tuple[Any, ...]) -> Effect | None:
        where = None if folder is None or len(args) <= folder else args[folder]
        more = () if where is None else (("cwd", _cut(absolute(where))),)
        return ("process", how, (("argv", tuple(argv(args[words]))), *more))

    return describe


def _bare(kind: str, how: str) -> Describe:
    def describe(_args: tuple[Any, ...]) -> Effect | None:
        return (kind, how, ())

    return describe


def _kill(how: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> Effect | None:
        if type(args[1]) is int and args[1] == 0:  # only asks whether it is there
            return None
        return ("kill", how, (("pid", text(args[0])), ("signal", text(args[1]))))

    return describe


# -- this process


def _environ(how: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> Effect | None:
        name = text(args[0])
        return None if name in _OURS else ("environ", how, (("name", _cut(name)),))

    return describe


def _chdir(args: tuple[Any, ...]) -> Effect | None:
    return ("cwd", "chdir", (("path", _cut(absolute(args[0]))),))


def _rlimit(index: int) -> Describe:
    def describe(args: tuple[Any, ...]) -> Effect | None:
        if args[index + 1] is None:  # prlimit without limits only reads
            return None
        return ("limit", "setrlimit", (("resource", text(args[index])),))

    return describe


EVENTS: dict[str, Describe] = {
    "os.remove": _on_path("remove"),
    "os.rmdir": _on_path("remove"),
    "shutil.rmtree": _on_path("remove-tree"),
    "os.mkdir": _on_path("mkdir", 2),
    "os.rename": _from_to("rename"),
    "os.link": _from_to("link"),
    "os.symlink": _symlink,
    "os.truncate": _on_path("truncate", 9),
    "os.chmod": _on_path("chmod", 2),
    "os.chown": _on_path("chown", 3),
    "os.utime": _on_path("utime", 3),
    "os.setxattr": _on_path("xattr", 9),
    "os.removexattr": _on_path("xattr", 9),
    "shutil.copyfile": _to("copy"),
    "shutil.copymode": _to("chmod"),
    "shutil.copystat": _to("utime"),
    "shutil.copytree": _to("copy-tree"),
    "shutil.chown": _on_path("chown", 9),
    "shutil.move": _from_to("move"),
    "shutil.make_archive": _make_archive,
    "shutil.unpack_archive": _unpack_archive,
    "sqlite3.connect": _sqlite,
    "socket.connect": _on_socket("connect"),
    "socket.bind": _on_socket("bind"),
    "socket.sendto": _on_socket("send"),
    "socket.sendmsg": _on_socket("send"),
    "http.client.connect": _host("http"),
    "ftplib.connect": _host("ftp"),
    "smtplib.connect": _host("smtp"),
    "poplib.connect": _host("pop"),
    "imaplib.open": _host("imap"),
    "urllib.Request": _url("request"),
    "webbrowser.open": _url("browser"),
    "syslog.syslog": _bare("syslog", "syslog"),
    "subprocess.Popen": _process("Popen", 1, folder=2),
    "os.system": _process("system", 0),
    "os.exec": _process("exec", 1),
    "os.posix_spawn": _process("posix_spawn", 1),
    "os.spawn": _process("spawn", 2),
    "pty.spawn": _process("pty.spawn", 0),
    "os.fork": _bare("process", "fork"),
    "os.forkpty": _bare("process", "forkpty"),
    "os.kill": _kill("kill"),
    "os.killpg": _kill("killpg"),
    "os.putenv": _environ("set"),
    "os.unsetenv": _environ("unset"),
    "os.chdir": _chdir,
    "resource.setrlimit": _rlimit(0),
    "resource.prlimit": _rlimit(1),
}
OPEN: Describe = _open

NATIVE: tuple[str, ...] = (
    "ctypes.dlopen",
    "ctypes.dlsym",
    "ctypes.dlsym/handle",
    "ctypes.call_function",
    "ctypes.cdata",
    "ctypes.cdata/buffer",
)
"""the program calls native code by hand"""
