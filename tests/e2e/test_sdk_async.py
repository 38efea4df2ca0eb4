"""The awaited client: the same session, many calls at once."""

from __future__ import annotations

import asyncio

import pytest

from kernel_runtime import aio
from kernel_runtime.errors import StillRunning


def test_attach_is_awaited_or_entered() -> None:
    async def story() -> None:
        async with aio.attach("alice", create=True, principal="agent:a") as session:
            assert (await session.execute("x = 2; x", timeout=60)).text == "2"
            await session.status()  # waits longer than an attach for the cell to be looked at
        session = await aio.attach("alice", principal="agent:a")
        assert session.truth is not None
        assert session.truth.counts["live"] == 1
        assert (await session.execute("x", timeout=60)).text == "2"
        await session.stop()
        await session.detach()

    asyncio.run(story())


def test_calls_run_side_by_side_and_cells_one_after_another() -> None:
    async def story() -> None:
        async with aio.attach("alice", create=True) as session:
            await session.execute("log = []", timeout=60)
            results = await asyncio.gather(
                *(session.execute(f"log.append({n}); {n}", timeout=60) for n in range(20))
            )
            assert [result.text for result in results] == [str(n) for n in range(20)]
            assert (await session.execute("log == list(range(20))", timeout=60)).text == "True"
            await session.stop()

    asyncio.run(story())


def test_following_while_it_runs() -> None:
    async def story() -> None:
        async with aio.attach("alice", create=True) as session:
            execution = await session.submit("for i in range(30): print(i, flush=True)")
            entries = [entry async for entry in execution.follow()]
            assert entries[-1].kind == "ExecutionFinished"
            assert (await execution.refresh()).text == "".join(f"{i}\n" for i in range(30))
            late = [
                entry.seq async for entry in session.follow(execution.cursor, until=execution.execution_id)
            ]
            assert late == sorted(set(late))
            await session.stop()

    asyncio.run(story())


def test_a_cancelled_wait_leaves_the_client_usable() -> None:
    async def story() -> None:
        async with aio.attach("alice", create=True) as session:
            execution = await session.submit("import time; time.sleep(0.5); 'end'")
            waiting = asyncio.ensure_future(execution.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(StillRunning) as still:
                await execution.wait(timeout=0)
            assert still.value.fields["execution_id"] == execution.execution_id
            assert (await execution.wait(timeout=60)).text == "'end'"
            await session.stop()

    asyncio.run(story())
