"""The awaited client: `async with kernel_runtime.aio.attach("alice") as s: await s.execute("1")`."""

from kernel_runtime.client.attaching import Attaching, attach
from kernel_runtime.client.session import AsyncSession, Execution

__all__ = ["AsyncSession", "Attaching", "Execution", "attach"]
