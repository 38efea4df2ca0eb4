"""The one rule by which secrets in arguments, environments and addresses are masked.

What is journaled is read by others, for ever, and cannot be taken back. So whatever is shown of a
command line, an environment or an address passes here first; docs/effects.md states the rule for
people. A secret is known by the **name** before it (`--password`, `API_KEY=`, `?token=`) or by its
own **shape** (`ghp_…`, a JWT, `user:secret@host`), and becomes `***`, whatever its length.

Pure, standard library only: the supervisor and the user's process both use it.

Not promised: that a secret without a telling name or shape is found (`login hunter2`). Where a word
is doubtful it is masked: a masked path costs a glance, a shown secret costs the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"

_LONG = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|token(?!iz)|api_?key|private_?key|access_?key"
    r"|account_?key|authorization|connection_?string|signature",
    re.IGNORECASE,
)
"""telling wherever they stand inside a name"""
_SHORT = frozenset(
    ("pass", "pwd", "pw", "key", "keys", "auth", "cookie", "cookies", "jwt", "pat", "dsn", "bearer", "otp")
    + ("pin", "sas", "creds", "sig")
)
"""telling only as a whole word of a name: `DB_PASS`, not `bypass`"""
_PUBLIC = frozenset(("pwd", "oldpwd", "public_key", "pubkey", "primary_key", "foreign_key", "key"))
"""names that are no secrets: the shell's directories, halves of key pairs, a bare sort key"""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COUNT = re.compile(r"[0-9]{1,9}\Z")

_NAME = r"[A-Za-z][\w.-]{0,80}"
_VALUE = re.compile(r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s"'&;|)\]},]+)""", re.DOTALL)
_NAMED = re.compile(
    rf"""(?<![\w.-])-{{0,2}}({_NAME})["']?\s{{0,4}}[=:](?!//)\s{{0,4}}  # NAME=, name: , "name":
    |    (?<![\w.-])--?({_NAME})[ \t]+(?!-)                            # --name value""",
    re.VERBOSE,
)
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/?#@:\"']*):([^\s/?#\"']*)@")
"""scheme://user:secret@, also where the secret itself holds an @"""
_LONE_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/?#@:\"']{16,})@")
"""scheme://token@: too long for a user's name"""
_SCHEME = re.compile(r"\b(Bearer|Basic|Digest|Negotiate)(\s+)([A-Za-z0-9+/=._~-]{6,})", re.IGNORECASE)
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
      gh[opsur]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,} | npm_[A-Za-z0-9]{16,}
    | hf_[A-Za-z0-9]{16,} | pypi-[\w-]{16,} | sk-[\w-]{16,} | [rs]k_(?:live|test)_\w{8,}
    | xox[abprs]-[\w-]{8,} | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[\w-]{30,} | ya29\.[\w-]{16,}
    | SG\.[\w-]{16,}\.[\w-]{16,} | eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?
    )""",
    re.VERBOSE,
)
_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_GLUED = re.compile(r"(-p)(?=.)(.+)\Z", re.DOTALL)

_PASSWORD_OPTIONS = {
    "sshpass": {"-p"},
    "docker": {"-p"},
    "podman": {"-p"},
    "htpasswd": set[str](),
    "ldapsearch": {"-w"},
    "ldapmodify": {"-w"},
    "zip": {"-P"},
    "unzip": {"-P"},
    "redis-cli": {"-a"},
    "mongo": {"-p"},
    "mongosh": {"-p"},
    "smbclient": set[str](),
}
"""short options whose next word is a password, by program"""
_LOGIN_OPTIONS = {
    "curl": {"-u", "--user", "-U", "--proxy-user"},
    "wget": set[str](),
    "smbclient": {"-U"},
    "http": {"-a", "--auth"},
}
"""options whose next word is `user:password`, or `user%password`, by program"""
_GLUED_PASSWORD = frozenset(
    ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "7z")
)
"""programs that take the password in the same word: `-pSECRET`"""


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is a secret: a variable, an option, a header, a query's field."""
    plain = name.strip("-_ ").replace("-", "_")
    if plain.lower() in _PUBLIC:
        return False
    if _LONG.search(plain):
        return True
    return not _SHORT.isdisjoint(word.lower() for word in _WORDS.findall(plain))


def mask_value(name: str, value: str) -> str:
    """A value as it may be shown beside its name."""
    if value and is_secret_name(name) and not _is_count(name, value):
        return MASK
    return mask_text(value)


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as it may be shown. Every name is there."""
    return {name: mask_value(name, value) for name, value in environment.items()}


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line as it may be shown: as many words as it has."""
    shown: list[str] = []
    program = argv[0].rpartition("/")[2] if argv else ""
    pending = ""
    for word in argv:
        if pending == "login":
            shown.append(_login(word))
        elif pending and not (pending == "named" and word.startswith("-")):
            shown.append(MASK)
        else:
            shown.append(_word(word, program))
            pending = _awaits(word, program)
            continue
        pending = ""
    return shown


def mask_text(text: str) -> str:
    """Free text: a shell's command line, code, an address, a prompt."""
    if not text:
        return text
    text = _PEM.sub(MASK, text)
    text = _USERINFO.sub(rf"\1\2:{MASK}@", text)
    text = _LONE_USERINFO.sub(rf"\1{MASK}@", text)
    text = _SCHEME.sub(rf"\1\2{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _mask_named(text)


def _is_count(name: str, value: str) -> bool:
    """`max_tokens=512` counts tokens, and is none."""
    return name.lower().endswith("tokens") and bool(_COUNT.match(value.strip("\"'")))


def _mask_named(text: str) -> str:
    """What stands behind the name of a secret; only names are consumed, so none hides in a value."""
    parts, done, at = [], 0, 0
    while named := _NAMED.search(text, at):
        at = named.end()
        name = named[1] or named[2]
        if not is_secret_name(name) or not (found := _VALUE.match(text, at)):
            continue
        value = found[0]
        if not _is_count(name, value) and not _is_masked(value):
            quote = value[0] if value[0] in "\"'" else ""
            parts += [text[done:at], quote, MASK, quote]
            done = at = found.end()
    return "".join([*parts, text[done:]])


def _is_masked(value: str) -> bool:
    # `Authorization: Bearer ***`: the scheme is worth showing, and the secret is gone already
    return value.strip("\"'").lower() in {MASK, "bearer", "basic", "digest", "negotiate"}


def _word(word: str, program: str) -> str:
    if program in _GLUED_PASSWORD and (glued := _GLUED.match(word)):
        return glued[1] + MASK
    for option in _LOGIN_OPTIONS.get(program, ()):
        if word.startswith(option + "=") and option.startswith("--"):
            return f"{option}={_login(word[len(option) + 1 :])}"
    name, equals, value = word.partition("=")
    if equals and value and re.fullmatch(rf"-{{0,2}}{_NAME}", name):
        return f"{name}={mask_value(name, value)}"  # the whole rest of the word, whatever is in it
    return mask_text(word)


def _awaits(word: str, program: str) -> str:
    """What the next word is: `secret`, `login`, `named` (a secret unless it is an option), or nothing."""
    if word in _PASSWORD_OPTIONS.get(program, ()):
        return "secret"
    if word in _LOGIN_OPTIONS.get(program, ()):
        return "login"
    if word.startswith("--") and "=" not in word and is_secret_name(word):
        return "" if word.lower().endswith(("tokens", "-stdin", "-file", "-prompt")) else "named"
    if re.fullmatch(r"-[a-zA-Z][\w-]{2,}", word) and is_secret_name(word):  # openssl's -passin
        return "named"
    return ""


def _login(word: str) -> str:
    user, colon, secret = word.partition("%" if "%" in word and ":" not in word else ":")
    return f"{user}{colon}{MASK}" if secret else mask_text(word)
