"""Check an evidence bundle of kernel-runtime with Python 3.8 or newer and nothing else.

    python krt_verify.py BUNDLE [--anchor FILE] [--allowed-signers FILE] [--json]

Exit status 0: nothing was changed. 9: something was, and it says what and where. 2: it cannot be read.

A bundle is a ZIP file of one exact form: every byte that is not a member's data follows from the members,
and its comment is the sha256 of all before it. Whoever repairs that after a change meets the chain: an
entry's `hash` is the sha256 of its columns, among them the sha256 of its payload and the `hash` of the
entry before. Whoever computes the whole chain anew is found by what others kept of it: an anchor (a line
of JSON with session_id, seq, hash) or a signature. Memory does not grow with the number of entries.

It does not find: what was never recorded; a chain computed anew by who holds the key, or before the first
anchor; entries added behind the last anchor; and, unless the manifest is signed, a changed notebook,
README or copy of this program under a manifest made anew. So run the copy that came with kernel-runtime.
"""
# ruff: noqa: T201, TRY301, B905, UP035 - a program of its own, for Python 3.8

from __future__ import annotations

import argparse
import base64
import calendar
import hashlib
import json
import re
import struct
import sys
import time
import zlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Iterator, NamedTuple, Sequence

JOURNAL, ENVIRONMENT = "journal.jsonl", "environment.json"
MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"
MEMBERS = ("README.txt", "krt_verify.py", JOURNAL, ENVIRONMENT, "notebook.ipynb", MANIFEST)
HEAD_NAMESPACE, BUNDLE_NAMESPACE = "kernel-runtime-journal", "kernel-runtime-bundle"
GENESIS = "0" * 64
NOTABLE = ("PayloadRedacted", "HeadSigned", "HeadAnchored", "HeadWitnessed")
_LONG = ("signature", "seqs", "digests", "replacements")  # fields that the manifest leaves out
_MOST = 100  # problems listed; the rest is counted
_CHUNK = 1 << 20
_LONGEST = 1 << 30  # bytes of one entry; a message has at most 64 MiB, unless that bound was raised
_SMALL = 1 << 26  # bytes of a manifest, which is read as a whole
_WAITING = 100_000  # entries whose redaction may be yet to come
_HOSTILE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Damaged(Exception):
    """Why it cannot be read on from here."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry_line(row: Sequence[Any]) -> bytes:
    """A line of journal.jsonl: the columns that are hashed, then `hash`, then the payload as text."""
    return _encode(list(row)).encode() + b"\n"


def read_line(line: bytes) -> list[Any]:
    """The row of a line that is the one way to write that row."""
    try:
        row: list[Any] = json.loads(line.decode())
        types = [type(value) for value in row]
        if types not in (_TYPES, [*_TYPES[:6], type(None), *_TYPES[7:]]) or entry_line(row) != line:
            raise Damaged("is not written as an entry is")
    except _HOSTILE:
        raise Damaged("is no entry") from None
    return row


_TYPES = [int, int, int, int, str, str, str, str, str, str, str]


def environment_item(seq: int, incarnation: int, payload: str) -> bytes:
    """A line of environment.json: an EnvironmentRecorded."""
    return f'{{"seq":{seq},"incarnation":{incarnation},"environment":{payload}}}\n'.encode()


class Chain:
    """Takes entries in order, checks each, and keeps what the manifest says of all; never the entries."""

    def __init__(self) -> None:
        self.problems: list[dict[str, Any]] = []
        self.found = 0
        self.seq, self.hash, self.entries, self.incarnations = 0, GENESIS, 0, 0
        self.session: dict[str, Any] = {}
        self.gaps = {"entries": 0, "messages": 0, "bytes": 0}
        self.notable: list[dict[str, Any]] = []
        self.signed: list[tuple[int | None, int, str, str]] = []  # a HeadSigned: entry, seq, hash, signature
        self.known: dict[Any, str | None] = {}  # seq -> hash, of those that somebody asks for
        self.signatures: list[dict[str, Any]] = []  # those that hold
        self.notes: list[str] = []
        self.environment = hashlib.sha256()
        self._altered: dict[int, list[Any]] = {}  # seq -> digest, sha256 of what stands there, redacted so

    def problem(self, where: str, what: str, seq: int | None = None) -> None:
        self.found += 1
        if len(self.problems) < _MOST:
            self.problems.append({"where": where, "what": what, "seq": seq})

    def add(self, row: Sequence[Any]) -> None:
        seq, _at, _mono, incarnation, principal, kind, _execution, digest, prev_hash, hash_, payload = row
        if seq != self.seq + 1:
            self.problem("entries", f"follows entry {self.seq}", seq)
        if prev_hash != self.hash:
            self.problem("entries", "prev_hash is not the hash of the entry before", seq)
        if sha256(_encode(list(row[:9])).encode()) != hash_:
            self.problem("entries", "hash does not fit: a column was changed", seq)
        stands = sha256(payload.encode())
        if stands != digest:
            self._altered[seq] = [digest, stands, False]
            if len(self._altered) > _WAITING:
                raise Damaged("payloads do not fit their digests")
        self.seq, self.hash, self.entries = seq, hash_, self.entries + 1
        self.incarnations = max(self.incarnations, incarnation)
        if seq in self.known:
            self.known[seq] = hash_
        try:
            self._note(seq, incarnation, principal, kind, payload)
        except _HOSTILE:
            self.problem("payloads", f"payload is no {kind}", seq)

    def _note(self, seq: int, incarnation: int, principal: str, kind: str, payload: str) -> None:
        if seq == 1:
            fact = json.loads(payload)
            self.session = {key: str(fact[key]) for key in ("session_id", "name", "kernel", "cwd")}
        elif kind == "EnvironmentRecorded":
            self.environment.update(environment_item(seq, incarnation, payload))
        elif kind == "GapRecorded":
            fact = json.loads(payload)
            for key, more in (("entries", 1), ("messages", fact["messages"]), ("bytes", fact["bytes"])):
                self.gaps[key] += int(more)
        elif kind in NOTABLE:
            fact = json.loads(payload)
            told = {key: value for key, value in fact.items() if key not in _LONG}
            if kind == "HeadSigned":
                self.signed.append((seq, int(fact["seq"]), str(fact["hash"]), str(fact["signature"])))
            elif kind == "PayloadRedacted":
                told["seqs"] = len(fact["seqs"])
                for earlier, digest in zip(fact["seqs"], fact["digests"]):
                    there = self._altered.get(earlier, [])
                    there[2:] = [there[:2] == [digest, fact["replacements"][str(earlier)]]]
            self.notable.append({**told, "entry": seq, "kind": kind, "principal": principal})

    def finish(self) -> None:
        for seq, (_digest, _stands, redacted) in self._altered.items():
            if not redacted:
                self.problem("payloads", "payload does not fit its digest", seq)
        if not self.entries:
            self.problem("entries", "there are none")

    def summary(self) -> dict[str, Any]:
        keys = ("session", "entries", "incarnations", "gaps", "notable")
        return {"head": {"seq": self.seq, "hash": self.hash}, **{key: getattr(self, key) for key in keys}}


def manifest_bytes(version: str, summary: dict[str, Any], members: dict[str, dict[str, Any]]) -> bytes:
    """manifest.json; `members` is name -> {"bytes", "sha256"} of every member before it."""
    document = {"format": 1, "kernel_runtime": version, **summary, "members": members}
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


# -- the container: always with ZIP64 fields, so that there is one form for every size


class Member(NamedTuple):
    name: str
    crc: int = 0
    packed: int = 0
    size: int = 0
    offset: int = 0


def local_header(one: Member) -> bytes:
    head = (b"PK\3\4", 45, 0, 8, 0, 33, one.crc, 0xFFFFFFFF, 0xFFFFFFFF, len(one.name), 20)
    return (
        struct.pack("<4s5H3L2H", *head)
        + one.name.encode()
        + struct.pack("<2H2Q", 1, 16, one.size, one.packed)
    )


def directory(members: Sequence[Member], at: int) -> bytes:
    """What follows the members, which end at byte `at`, up to the text of the comment."""
    made, full, n, table = 3 << 8 | 45, 0xFFFFFFFF, len(members), b""
    for one in members:
        head = (b"PK\1\2", made, 45, 0, 8, 0, 33, one.crc, full, full, len(one.name), 28, 0, 0, 0)
        table += struct.pack("<4s6H3L5H2L", *head, 0o100600 << 16, full) + one.name.encode()
        table += struct.pack("<2H3Q", 1, 24, one.size, one.packed, one.offset)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, made, 45, 0, 0, n, n, len(table), at)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at + len(table), 1)
    return table + end64 + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, n, n, len(table), full, 71)


def read_directory(file: BinaryIO) -> list[Member]:
    for names in (MEMBERS, (*MEMBERS, SIGNATURE)):
        length = len(directory([Member(name) for name in names], 0))
        at = file.seek(0, 2) - length - 71
        file.seek(max(at, 0))
        tail, place, end, members = file.read(length), 0, 0, []
        for name in names if at > 0 else ():
            crc, sizes = tail[place + 16 : place + 20], place + 50 + len(name)
            size, packed, offset = struct.unpack("<3Q", tail[sizes : sizes + 24])
            members.append(Member(name, int.from_bytes(crc, "little"), packed, size, offset))
            place = sizes + 24
        if members and tail == directory(members, at):
            for one in members:
                header = local_header(one)
                file.seek(end)
                if one.offset != end or file.read(len(header)) != header:
                    raise Damaged(f"what stands before {one.name} is not its header")
                end += len(header) + one.packed
            if end != at:
                raise Damaged("there are bytes that belong to no member")
            return members
    raise Damaged("its end is not exactly a bundle's: cut off, added to, or with other or more members")


def unpacked(file: BinaryIO, one: Member) -> Iterator[bytes]:
    """A member's data: a chunk at a time, and no more than it says it has."""
    file.seek(one.offset + len(local_header(one)))
    left, size, crc, inflate = one.packed, 0, 0, zlib.decompressobj(-15)
    while not inflate.eof:
        packed = inflate.unconsumed_tail
        if not packed:
            packed = file.read(min(left, _CHUNK))
            left -= len(packed)
        try:
            data = inflate.decompress(packed, _CHUNK)
        except zlib.error:
            raise Damaged(f"cannot be unpacked behind byte {size}") from None
        size, crc = size + len(data), zlib.crc32(data, crc)
        if size > one.size or not (packed or data or inflate.eof):
            raise Damaged(f"has not the {one.size} bytes that it says")
        yield data
    if (left, inflate.unused_data, size, crc) != (0, b"", one.size, one.crc):
        raise Damaged("is not what its size and checksum say")


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield b"".join([*begun, piece, b"\n"])
            begun = []
        begun += [rest] if rest else []
        if len(begun) * _CHUNK > _LONGEST:
            raise Damaged("has a line that is longer than any entry")
    if begun:
        yield b"".join(begun)


# -- signatures: SSHSIG (OpenSSH's PROTOCOL.sshsig) by Ed25519 (RFC 8032)

_P, _L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P


def _point(data: bytes) -> Sequence[int]:
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if y >= _P or (x * x - square) % _P or (x == 0 and sign):
        raise Damaged("it holds what is no point of the curve")
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def _plus(one: Sequence[int], two: Sequence[int]) -> Sequence[int]:
    a, b = (one[1] - one[0]) * (two[1] - two[0]), (one[1] + one[0]) * (two[1] + two[0])
    c, d = 2 * one[3] * two[3] * _D, 2 * one[2] * two[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(number: int, point: Sequence[int]) -> Sequence[int]:
    total: Sequence[int] = (0, 1, 1, 0)
    while number:
        total = _plus(total, point) if number & 1 else total
        point, number = _plus(point, point), number >> 1
    return total


def ed25519_holds(key: bytes, message: bytes, signature: bytes) -> bool:
    s, base = int.from_bytes(signature[32:], "little"), (4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little")
    if len(key) != 32 or len(signature) != 64 or s >= _L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % _L
    left, right = _times(s, _point(base)), _plus(_point(signature[:32]), _times(h, _point(key)))
    return not any((left[i] * right[2] - right[i] * left[2]) % _P for i in (0, 1))


def _strings(data: bytes) -> Iterator[bytes]:
    while data:
        length = 4 + int.from_bytes(data[:4], "big")
        if len(data) < length:
            raise Damaged("it is cut off")
        yield data[4:length]
        data = data[length:]


def signing_key(armor: str, message: bytes, namespace: str) -> str:
    """The public key, in base64, whose SSHSIG of the message this is; Damaged if it is none."""
    found = re.fullmatch(r"-----BEGIN SSH SIGNATURE-----\n([\w+/=\n]+)-----END SSH SIGNATURE-----\n?", armor)
    try:
        blob = base64.b64decode(found.group(1) if found else "")
        key, told, reserved, how, signature = _strings(blob[10:])
        (kind, public, *more), (by, raw) = _strings(key), _strings(signature)
    except ValueError:
        raise Damaged("it is no SSH signature") from None
    if (blob[:10], kind, by, more) != (b"SSHSIG\0\0\0\1", b"ssh-ed25519", b"ssh-ed25519", []):
        raise Damaged("it is not by an Ed25519 key: only ssh-keygen can check it")
    if told != namespace.encode() or how not in (b"sha256", b"sha512"):
        raise Damaged("it was made for another purpose")
    parts = (told, reserved, how, hashlib.new(how.decode(), message).digest())
    signed = b"SSHSIG" + b"".join(struct.pack(">L", len(part)) + part for part in parts)
    if not ed25519_holds(public, signed, raw):
        raise Damaged("it does not fit what stands here")
    return base64.b64encode(key).decode()


def fingerprint(key: str) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(key)).digest()).decode()[:-1]


def head_message(session_id: str | None, seq: int, hash_: str) -> bytes:
    """What `krt sign` signs."""
    return f"kernel-runtime journal {session_id} {seq} {hash_}\n".encode("utf-8", "backslashreplace")


_OPTION = r'([\w-]+)(?:="([^"]*)")?'
_SIGNER = re.compile(rf'("[^"]+"|\S+)\s+(?:({_OPTION}(?:,{_OPTION})*)\s+)?ssh-ed25519\s+([\w+/=]+)(?:\s|$)')


def signer(allowed: str, key: str, namespace: str, now: float) -> str | None:
    """Whose key that is in an allowed_signers file, by the rules of ssh-keygen(1); None: nobody's."""
    for line in allowed.split("\n"):
        found = _SIGNER.match(line.strip())
        if found is None or line.lstrip().startswith("#") or found.group(7) != key:
            continue
        told = [(name.lower(), value) for name, value in re.findall(_OPTION, found.group(2) or "")]
        options = {"namespaces": "*", "valid-after": "19700101Z", "valid-before": "99991231Z", **dict(told)}
        patterns = [text.replace("[", "[[]") for text in options["namespaces"].split(",")]
        hits = {text[:1] == "!" for text in patterns if fnmatchcase(namespace, text.lstrip("!"))}
        timely = _moment(options["valid-after"]) <= now <= _moment(options["valid-before"])
        # more than these is cert-authority, or what nobody knows; and each stands once
        if hits == {False} and timely and len(options) == 3 and len(told) == len(dict(told)):
            return found.group(1).strip('"')
    return None


def _moment(text: str) -> float:
    digits = text.rstrip("Zz")
    try:
        moment = time.strptime(digits, "%Y%m%d%H%M%S"[: {8: 6, 12: 10}.get(len(digits), 12)])
        return calendar.timegm(moment) if digits != text else time.mktime(moment)
    except (ValueError, OverflowError):
        return float("nan")  # neither before nor after anything


# -- all of it


def read_anchors(text: str, chain: Chain) -> list[tuple[str, int, str]]:
    kept = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            one = json.loads(line.strip() or "null")
            kept += [(str(one["session_id"]), int(one["seq"]), str(one["hash"]))] if one is not None else []
        except _HOSTILE:
            chain.problem("anchor", f"line {number} is no anchor")
    return kept


def check_anchors(chain: Chain, kept: Sequence[tuple[str, int, str]]) -> None:
    ours = [(seq, hash_) for session_id, seq, hash_ in kept if session_id == chain.session.get("session_id")]
    for seq, hash_ in ours:
        if seq > chain.seq:
            chain.problem("anchor", f"was anchored, and the chain ends at {chain.seq}: it was cut off", seq)
        elif chain.known.get(seq) != hash_:
            chain.problem("anchor", "is another one than was anchored", seq)
    if not ours:
        chain.problem("anchor", f"there is none of session {chain.session.get('session_id')}")
    chain.notes.append(f"{len(ours)} anchors of this session, the last of entry {max([0, *dict(ours)])}")


def check_signatures(chain: Chain, manifest: bytes, armor: str | None, allowed: str | None) -> None:
    """All that there are; `armor` is the one of the manifest."""
    bundle = [] if armor is None else [(None, chain.seq, chain.hash, armor)]
    for entry, seq, hash_, text in [*chain.signed, *bundle]:
        message, namespace = manifest, BUNDLE_NAMESPACE
        try:
            if entry is not None:
                message, namespace = head_message(chain.session.get("session_id"), seq, hash_), HEAD_NAMESPACE
                if chain.known.get(seq) != hash_:
                    raise Damaged(f"it is of an entry {seq} that is not the one here")
            key = signing_key(text, message, namespace)
            told = {"of": "bundle" if entry is None else "head", "entry": entry, "seq": seq}
            who = signer(allowed or "", key, namespace, time.time())
            chain.signatures.append({**told, "key": fingerprint(key), "signer": who})
        except Damaged as error:
            chain.problem("signature", f"the signature there does not hold: {error}", entry)
    if allowed is not None and not any(one["signer"] for one in chain.signatures):
        chain.problem("signature", "there is none by a signer that is allowed")


def document(chain: Chain) -> dict[str, Any]:
    """What `krt verify --json` says."""
    keys = ("problems", "found", "notes", "signatures")
    head = {"ok": chain.found == 0, "head": chain.seq, "head_hash": chain.hash}
    return {**chain.summary(), **head, **{key: getattr(chain, key) for key in keys}}


def verify(path: str, anchors: str | None = None, allowed: str | None = None) -> dict[str, Any]:
    """Check a bundle; `anchors` and `allowed` are the texts of an anchor and an allowed_signers file."""
    chain = Chain()
    with open(path, "rb") as file:
        try:
            members = read_directory(file)
        except Damaged as error:
            chain.problem("container", f"this is no whole bundle: {error}")
            return document(chain)
        _own_digest(file, chain)
        texts = {one.name: bytearray() for one in members[5:]}  # the manifest, and its signature
        for one in members[5:]:
            _through(file, one, chain, texts[one.name])
        kept = read_anchors(anchors or "", chain)
        try:
            told = json.loads(texts[MANIFEST])
            version = str(told["kernel_runtime"])
            asked = [one["seq"] for one in told["notable"] if one["kind"] == "HeadSigned"]
            chain.known = dict.fromkeys(asked + [seq for _session_id, seq, _hash in kept])
        except _HOSTILE:
            told, version = {}, ""
        found = {one.name: _through(file, one, chain) for one in members[:5]}
    chain.finish()
    if chain.environment.hexdigest() != found[ENVIRONMENT]["sha256"]:
        chain.problem(ENVIRONMENT, "is not what the chain says")
    wanted = manifest_bytes(version, chain.summary(), found)
    if wanted != bytes(texts[MANIFEST]):
        other = [key for key, value in json.loads(wanted).items() if told.get(key) != value]
        chain.problem(MANIFEST, f"is not what the bundle holds ({', '.join(other) or 'its layout'})")
    if anchors is not None:
        check_anchors(chain, kept)
    armor = texts[SIGNATURE].decode("latin-1") if SIGNATURE in texts else None
    check_signatures(chain, bytes(texts[MANIFEST]), armor, allowed)
    return document(chain)


def _own_digest(file: BinaryIO, chain: Chain) -> None:
    digest, size = hashlib.sha256(), file.seek(0, 2) - 71
    file.seek(0)
    for at in range(0, size, _CHUNK):
        digest.update(file.read(min(size - at, _CHUNK)))
    if file.read() != b"sha256:" + digest.hexdigest().encode():
        chain.problem("container", "the file's digest of itself does not fit: bytes were changed")


def _through(file: BinaryIO, one: Member, chain: Chain, keep: bytearray | None = None) -> dict[str, Any]:
    """Size and sha256 of a member that is read through; the journal's entries go into the chain."""
    digest, number, data = hashlib.sha256(), 0, unpacked(file, one)
    try:
        if keep is not None and one.size > _SMALL:
            raise Damaged("is longer than any")
        for number, part in enumerate(lines(data) if one.name == JOURNAL else data, 1):
            digest.update(part)
            if keep is not None:
                keep += part
            if one.name == JOURNAL:
                try:
                    chain.add(read_line(part))
                except Damaged as error:
                    chain.problem(one.name, f"line {number} {error}")
    except Damaged as error:
        chain.problem(one.name, f"{error}; {number} parts of it could be read")
    return {"bytes": one.size, "sha256": digest.hexdigest()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check an evidence bundle of kernel-runtime.")
    parser.add_argument("bundle")
    parser.add_argument("--anchor", metavar="FILE", help="lines of JSON with session_id, seq and hash")
    parser.add_argument("--allowed-signers", metavar="FILE", help="of ssh-keygen(1); one must have signed")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        texts = (name and Path(name).read_text("utf-8") for name in (asked.anchor, asked.allowed_signers))
        found = verify(asked.bundle, *texts)
    except (OSError, UnicodeDecodeError) as error:
        print(f"cannot be read: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found) if asked.json else "\n".join(in_words(found)))
    return 0 if found["ok"] else 9


def in_words(found: dict[str, Any]) -> list[str]:
    """For people, and without what could drive their terminal."""
    told = [f"session {found['session'].get('name')}: {found['entries']} entries, head {found['head_hash']}"]
    for one in found["notable"]:
        fields = (f"{key} {value}" for key, value in one.items() if key not in ("entry", "kind", "principal"))
        told += [f"entry {one['entry']}: {one['kind']} by {one['principal']}: {', '.join(fields)}"]
    for one in found["signatures"]:
        told += [f"up to entry {one['seq']} signed by {one['signer'] or 'somebody'}, key {one['key']}"]
    if found["gaps"]["entries"]:
        told += ["not recorded: {entries} gaps, {messages} messages, {bytes} bytes".format(**found["gaps"])]
    told += found["notes"]
    told += ["DAMAGED {where} {seq}: {what}".format(**one).replace(" None", "") for one in found["problems"]]
    told += ["nothing was changed" if found["ok"] else f"changed: {found['found']} problems"]
    return ["".join(c if c.isprintable() else "\ufffd" for c in line) for line in told]


if __name__ == "__main__":
    sys.exit(main())
