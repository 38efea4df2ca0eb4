"""Writes down who vouches for this journal's head, where it was anchored, and what this journal witnesses.

An entry that says so is only written if it is true of this journal: the entry of that hash is there, and
a signature holds. Synced, as everything that others rely on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kernel_runtime.errors import Refused, UsageError
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import Fact, HeadAnchored, HeadSigned, HeadWitnessed
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

_F = TypeVar("_F", bound=Fact)


class Heads:
    """Answers `head`, `head_signed`, `head_anchored` and `head_witnessed`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        supervisor.rpc.register(
            {
                "head": self._head,
                "head_signed": self._signed,
                "head_anchored": self._anchored,
                "head_witnessed": self._witnessed,
            }
        )

    def _head(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        journal = self._s.shell.journal
        if journal.unsynced:
            journal.sync()  # what a power cut could still take is no head to vouch for
        identity = self._s.identity
        told = {"session_id": identity.session_id, "name": identity.name}
        token.respond({**told, "seq": journal.head, "hash": journal.head_hash})

    def _signed(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        from kernel_runtime.evidence import standalone

        fact = _fact(HeadSigned, args)
        self._require(fact.seq, fact.hash)
        message = standalone.head_message(self._s.identity.session_id, fact.seq, fact.hash)
        try:
            key = standalone.signing_key(fact.signature, message, standalone.HEAD_NAMESPACE)
        except standalone.Damaged as error:
            raise Refused(f"the signature does not hold: {error}", hint="`krt sign` makes one") from None
        if fact.key != f"ssh-ed25519 {key}" or fact.namespace != standalone.HEAD_NAMESPACE:
            raise Refused("the signature is by another key than is said", hint="`krt sign` makes one")
        self._append(fact, principal, token)

    def _anchored(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        fact = _fact(HeadAnchored, args)
        self._require(fact.seq, fact.hash)
        self._append(fact, principal, token)

    def _witnessed(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._append(_fact(HeadWitnessed, args), principal, token)

    def _require(self, seq: int, hash_: str) -> None:
        """Refuse what is no entry of this journal."""
        connection = self._s.shell.reader.connection
        row = connection.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
        if row is None or row[0] != hash_:
            name = self._s.identity.name
            raise Refused(f"session {name}: no entry {seq} of that hash", hint="ask for the head anew")

    def _append(self, fact: Fact, principal: str, token: Token) -> None:
        shell = self._s.shell
        (written,) = shell.journal.append([Draft(fact, principal, shell.state.incarnation)], sync=True)
        shell.committed()
        token.respond({"entry": written.seq})


def _fact(kind: type[_F], args: dict[str, Any]) -> _F:
    try:
        return msgspec.convert(args.get("document"), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"no {kind.__name__}: {error}", hint="`document` holds its fields") from error
