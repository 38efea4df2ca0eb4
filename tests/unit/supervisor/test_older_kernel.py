"""A kernel that an older version has started and that lives on: nobody waits for what it never tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from kernel_runtime.kernel.outbox_reader import WireMessage
from kernel_runtime.process import ProcessId
from kernel_runtime.supervisor.launch import KernelRecord, load_record
from kernel_runtime.supervisor.pump import Pump
from kernel_runtime.wire import DELIMITER, Header, Signer, ipc_connection


def record(**fields: Any) -> KernelRecord:
    return KernelRecord(
        incarnation=1,
        process=ProcessId(1, 1, "b"),
        connection=ipc_connection(Path("/nowhere/kernel-1"), "key", "python3"),
        outbox="/nowhere/outbox-1",
        log="",
        interrupt_mode="message",
        language="python",
        **fields,
    )


def test_a_record_of_an_older_version_says_that_its_kernel_does_not_tell(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    document = msgspec.to_builtins(record(observes=True))
    del document["observes"]
    path.write_bytes(msgspec.json.encode(document))
    found = load_record(path)
    assert found is not None
    assert not found.observes


@pytest.mark.parametrize("observes", [True, False])
def test_an_observation_is_awaited_only_of_a_kernel_that_tells(*, observes: bool) -> None:
    recorder = MagicMock(has_output=False, has_gaps=False)
    recorder.take.return_value = ()
    pump = Pump(
        MagicMock(carry=()),
        MagicMock(),
        MagicMock(),
        recorder,
        probe_session="probe",
        on_reply=lambda *_: None,
        on_input=lambda *_: None,
    )
    pump.attach(MagicMock(record=record(observes=observes)), 1, 0, inherited=False)
    request = msgspec.json.encode(Header(msg_id="m1", msg_type="execute_request", session="s"))
    frames = Signer(b"key").build("execute_reply", {"status": "ok"}, session="k", parent=request)
    pump._message(WireMessage(position=9, channel="shell", frames=[DELIMITER, *frames]))
    assert pump.is_observed is not observes
