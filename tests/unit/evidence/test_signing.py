"""Signatures: the verifier's own Ed25519 against RFC 8032 and ssh-keygen, and whose keys are believed."""

from __future__ import annotations

import calendar
import contextlib
import subprocess
from pathlib import Path

import pytest

from kernel_runtime.errors import MissingPackage, UsageError
from kernel_runtime.evidence import signing, standalone
from kernel_runtime.evidence.check import check_journal
from kernel_runtime.journal import Journal
from tests.support import eventually
from tests.unit.evidence.support import (
    SESSION,
    allowed,
    anchor_of,
    container,
    create,
    journal_of_everything,
    make_key,
    members_of,
    repaired,
    rows_of,
    signed,
    write,
)
from tests.unit.journal.support import append, printed

# RFC 8032, section 7.1: secret keys are not needed to verify
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]
_L = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize("public,message,signature", VECTORS)
def test_the_vectors_of_rfc_8032(public: str, message: str, signature: str):
    key, text, good = (bytes.fromhex(value) for value in (public, message, signature))
    assert standalone.ed25519_holds(key, text, good)
    assert not standalone.ed25519_holds(key, text + b"x", good)
    s = int.from_bytes(good[32:], "little") + _L  # the same point: malleable, and refused
    assert not standalone.ed25519_holds(key, text, good[:32] + s.to_bytes(32, "little"))
    for bit in range(0, 512, 37):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(standalone.Damaged):  # it may be no point of the curve
            assert not standalone.ed25519_holds(key, text, bytes(bad))


def test_ssh_keygen_and_the_verifier_agree(key: Path, tmp_path: Path):
    (tmp_path / "signers").write_text(allowed(key))
    for message in (b"", b"x", standalone.head_message(SESSION, 7, "0" * 64), bytes(range(256)) * 300):
        made = signing.sign(key, message, "a-purpose")
        (tmp_path / "sig").write_text(made.armor)
        argv = ["ssh-keygen", "-Y", "verify", "-n", "a-purpose", "-I", "alice@example.com"]
        argv += ["-f", str(tmp_path / "signers"), "-s", str(tmp_path / "sig")]
        assert subprocess.run(argv, input=message, capture_output=True, check=False).returncode == 0
        assert made.key.split()[1] == standalone.signing_key(made.armor, message, "a-purpose")
        told = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True, check=True)
        assert made.fingerprint == told.stdout.split()[1]
        with pytest.raises(standalone.Damaged, match="another purpose"):
            standalone.signing_key(made.armor, message, "another")
        with pytest.raises(standalone.Damaged, match="does not fit"):
            standalone.signing_key(made.armor, message + b"x", "a-purpose")


def test_only_ed25519_signs(tmp_path: Path):
    with pytest.raises(UsageError, match="not by an Ed25519 key"):
        signing.sign(make_key(tmp_path, kind="ecdsa"), b"x", "n")


def test_what_cannot_sign(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="did not sign") as caught:
        signing.sign(tmp_path / "none", b"x", "n")
    assert "makes a key" in caught.value.hint
    (tmp_path / "text").write_text("no key")
    with pytest.raises(UsageError, match="did not sign"):
        signing.sign(tmp_path / "text", b"x", "n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage, match="ssh-keygen"):
        signing.sign(key, b"x", "n")


def test_a_key_with_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """ssh-keygen asks for it, here by a program; a wrong one is told."""
    key = make_key(tmp_path, passphrase="correct")
    asks = tmp_path / "asks"
    asks.write_text("#!/bin/sh\necho $PASSPHRASE\n")
    asks.chmod(0o700)
    for name, value in {"SSH_ASKPASS": asks, "SSH_ASKPASS_REQUIRE": "force", "PASSPHRASE": "correct"}.items():
        monkeypatch.setenv(name, str(value))
    assert signing.sign(key, b"x", "n").key == " ".join(key.with_name("key.pub").read_text().split()[:2])
    monkeypatch.setenv("PASSPHRASE", "wrong")
    with pytest.raises(UsageError, match=r"did not sign with .* passphrase"):
        signing.sign(key, b"x", "n")


def test_a_key_that_an_agent_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only the public key is in a file."""
    key = make_key(tmp_path)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "socket"))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "socket")], stdout=subprocess.DEVNULL)
    try:
        # its socket has a name before it listens
        eventually(
            lambda: subprocess.run(["ssh-add", "-q", key], capture_output=True, check=False).returncode == 0,
            what="the agent takes the key",
        )
        key.unlink()
        public = key.with_name("key.pub")
        assert signing.sign(public, b"x", "n").key == " ".join(public.read_text().split()[:2])
    finally:
        agent.terminate()
        agent.wait()


NOW = calendar.timegm((2026, 6, 1, 12, 0, 0))


@pytest.mark.parametrize(
    "line,who",
    [
        ("alice KEY", "alice"),
        ("alice KEY a comment", "alice"),
        ("  alice\t KEY", "alice"),
        ('"alice,bob" KEY', "alice,bob"),
        ("*@example.com KEY", "*@example.com"),
        ("# alice KEY", None),
        ("alice ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMOt4B", None),
        ('alice namespaces="n" KEY', "alice"),
        ('alice namespaces="m,n*" KEY', "alice"),
        ('alice namespaces="m" KEY', None),
        ('alice namespaces="*,!n" KEY', None),
        ('alice namespaces="[n]" KEY', None),
        ("alice cert-authority KEY", None),
        ('alice cert-authority,namespaces="n" KEY', None),
        ("alice no-such-option KEY", None),
        ('alice valid-after="20260101Z" KEY', "alice"),
        ('alice valid-after="20260701Z" KEY', None),
        ('alice valid-before="20260101Z",namespaces="n" KEY', None),
        ('alice valid-after="202606011159Z",valid-before="20260601120001Z" KEY', "alice"),
        ('alice VALID-BEFORE="20260601115959Z" KEY', None),
        ('alice namespaces="m" KEY\nbob KEY', "bob"),
        ("alice KEY\nbob KEY", "alice"),
        ('alice valid-after="20261399Z" KEY', None),
        ('alice namespaces="n",namespaces="n" KEY', None),
        ("alice " + "a" * 5000 + "! KEY", None),
        ("alice " + "a," * 5000 + " KEY", None),
        ("", None),
    ],
)
def test_whose_key_it_is(key: Path, tmp_path: Path, line: str, who: str | None):
    """By the rules of ssh-keygen(1), and as ssh-keygen itself finds it."""
    kind, public, *_comment = key.with_name("key.pub").read_text().split()
    text = line.replace("KEY", f"{kind} {public}") + "\n"
    assert standalone.signer(text, public, "n", NOW) == who
    (tmp_path / "signers").write_text(text)
    (tmp_path / "sig").write_text(signing.sign(key, b"x", "n").armor)
    # find-principals asks for no namespace: verify does
    argv = ["ssh-keygen", "-Y", "verify", "-n", "n", "-I", (who or "alice").split(",")[0].replace("*", "a")]
    argv += ["-O", "verify-time=20260601120000Z"]
    argv += ["-f", str(tmp_path / "signers"), "-s", str(tmp_path / "sig")]
    theirs = subprocess.run(argv, input=b"x", capture_output=True, check=False).returncode == 0
    assert theirs == (who is not None)


def test_a_bundle_is_signed_in_the_middle_and_as_a_whole(key: Path, tmp_path: Path):
    path = write(tmp_path, key=key)
    found = standalone.verify(str(path), None, allowed(key))
    assert found["ok"]
    assert [(one["of"], one["seq"], one["signer"]) for one in found["signatures"]] == [
        ("head", 10, "alice@example.com"),
        ("bundle", found["head"], "alice@example.com"),
    ]
    unasked = standalone.verify(str(path))
    assert (unasked["ok"], [one["signer"] for one in unasked["signatures"]]) == (True, [None, None])


def test_nobody_who_is_allowed_has_signed(key: Path, tmp_path: Path):
    other = make_key(tmp_path, "other")
    path = write(tmp_path, key=key)
    for signers in (allowed(other), "", allowed(key, options='namespaces="git"')):
        found = standalone.verify(str(path), None, signers)
        assert [one["what"] for one in found["problems"]] == ["there is none by a signer that is allowed"]


def test_a_forger_without_the_key(key: Path, tmp_path: Path):
    """Whatever is made anew behind a signature, the signature is of what stood there."""
    path = write(tmp_path, key=key)
    members = members_of(path)
    changed = {**members, "notebook.ipynb": members["notebook.ipynb"].replace(b"print", b"other")}
    forged = repaired(changed, rows_of(members))
    path.write_bytes(forged)
    found = standalone.verify(str(path))
    assert [(one["where"], one["seq"]) for one in found["problems"]] == [("signature", None)]
    rows = rows_of(members)
    for number in range(4, len(rows)):
        rows[number][1] += 1
        rows[number][8] = rows[number - 1][9]
        rows[number][9] = standalone.sha256(standalone._encode(rows[number][:9]).encode())
    without = {name: content for name, content in members.items() if name != standalone.SIGNATURE}
    path.write_bytes(repaired(without, rows))
    found = standalone.verify(str(path))
    assert [(one["where"], one["seq"]) for one in found["problems"]] == [("signature", 11)]
    assert "not the one here" in found["problems"][0]["what"]


@pytest.mark.parametrize(
    "change", ["", "x", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"]
)
def test_a_signature_that_is_none(key: Path, tmp_path: Path, change: str):
    path = write(tmp_path, key=key)
    path.write_bytes(container({**members_of(path), standalone.SIGNATURE: change.encode()}))
    found = standalone.verify(str(path))
    assert [one["where"] for one in found["problems"]] == ["signature"]


def test_a_journal_is_held_against_what_was_kept(key: Path, tmp_path: Path):
    path = journal_of_everything(tmp_path / "journal.db", key)
    with Journal.open(path) as journal:
        head = anchor_of(journal.head, journal.head_hash)
    found = check_journal(path, head, allowed(key))
    assert (found["problems"], [one["signer"] for one in found["signatures"]]) == ([], ["alice@example.com"])
    assert found["notes"] == [f"1 anchors of this session, the last of entry {journal.head}"]
    other = anchor_of(journal.head, "0" * 64) + anchor_of(journal.head + 1, "0" * 64)
    told = check_journal(path, other, "")["problems"]
    assert [(one["where"], one["seq"]) for one in told] == [
        ("anchor", journal.head),
        ("anchor", journal.head + 1),
        ("signature", None),
    ]


def test_a_signature_of_another_journal(key: Path, tmp_path: Path):
    with create(tmp_path / "journal.db") as journal:
        wrong = signed(journal, key)
        append(journal, printed(None, "x"))
        append(journal, type(wrong)(**{**{f: getattr(wrong, f) for f in wrong.__struct_fields__}, "seq": 4}))
    found = check_journal(tmp_path / "journal.db", None, None)
    assert [(one["where"], one["seq"]) for one in found["problems"]] == [("signature", 5)]
