"""Signatures by ssh-keygen: its keys, its agents, its questions for a passphrase.

Invariant: what `sign` returns was checked by the verifier's own code. Only Ed25519: that is what a
bundle's verifier can check without OpenSSH.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from msgspec import Struct

from kernel_runtime.errors import MissingPackage, UsageError
from kernel_runtime.evidence import standalone


class Signature(Struct, frozen=True, kw_only=True):
    """An SSHSIG."""

    armor: str
    key: str
    """the public key, as authorized_keys has it"""

    @property
    def fingerprint(self) -> str:
        return standalone.fingerprint(self.key.split()[1])


def sign(key: Path, message: bytes, namespace: str) -> Signature:
    """The signature of a message, made with a private key, or by an agent that has the one of `key`.

    ssh-keygen asks for a passphrase on the terminal, or by SSH_ASKPASS.

    Raises:
        MissingPackage: there is no ssh-keygen.
        UsageError: it did not sign, and says why; or the key is no Ed25519 key.
    """
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(key)],
            input=message,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingPackage(
            "ssh-keygen is not installed, which signs", hint="install OpenSSH's client, 8.1 or newer"
        ) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.returncode}"
        raise UsageError(
            f"ssh-keygen did not sign with {key}: {said}",
            hint=f"`ssh-keygen -t ed25519 -f {key}` makes a key" if not key.exists() else "",
            key=str(key),
        )
    armor = done.stdout.decode("ascii", "replace")
    try:
        made = standalone.signing_key(armor, message, namespace)
    except standalone.Damaged as error:
        raise UsageError(
            f"the signature by {key} is of no use: {error}",
            hint="sign with an Ed25519 key: `ssh-keygen -t ed25519`",
            key=str(key),
        ) from error
    return Signature(armor=armor, key=f"ssh-ed25519 {made}")
