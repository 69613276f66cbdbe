"""The process that is connected to Ray.

It is a process of its own because Ray ends the process that is connected to it when the head of the cluster dies, has
handlers for signals, and prints: neither may reach the results that the light process has, or the screen.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import ray

from gradverify.run.engines.cluster.connection import ClusterError, connect, refuse_other_versions
from gradverify.run.engines.cluster.messages import (
    Cancellation,
    Cancelled,
    Connected,
    Opening,
    Refused,
    Submission,
)
from gradverify.run.engines.cluster.slots import Slots
from gradverify.run.framing import HEADER, frame_of, receive_frame, send_frame


def main(control_fd: int) -> None:
    """Serve the light process at the other end of the socket `control_fd` until it closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    try:
        opening: Opening = receive_frame(control)
        try:
            connect(opening)
        except ClusterError as error:
            send_frame(control, Refused(reason=str(error)))
            return
        asyncio.run(_serve(control, opening))
    except (EOFError, OSError):
        pass
    finally:
        ray.shutdown()


async def _serve(control: socket.socket, opening: Opening) -> None:
    reader, writer = await asyncio.open_connection(sock=control)

    def send(message: Any) -> None:
        writer.write(frame_of(message))

    slots = Slots(opening, send)
    try:
        slots.start()  # torch loads on the nodes while they are asked for their versions
        await asyncio.gather(_receive(reader, slots, send), _accept(opening, slots, send), slots.tick())
    except asyncio.IncompleteReadError:
        pass  # the light process has closed its end
    finally:
        await slots.end()


async def _receive(reader: asyncio.StreamReader, slots: Slots, send: Callable[[Any], None]) -> None:
    """Handle the messages of the light process. Raises IncompleteReadError when it has closed its end."""
    while True:
        (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
        message = pickle.loads(await reader.readexactly(length))
        if isinstance(message, Submission):
            slots.submit(message.tasks)
        elif isinstance(message, Cancellation):
            send(Cancelled(frames=await slots.cancel()))


async def _accept(opening: Opening, slots: Slots, send: Callable[[Any], None]) -> None:
    """Let tasks run if every node has the versions of this machine."""
    nodes = slots.nodes()
    try:
        await _in_thread(lambda: refuse_other_versions(opening, nodes))
    except ClusterError as error:
        send(Refused(reason=str(error)))
    else:
        send(Connected())
        slots.accept()


async def _in_thread(call: Callable[[], None]) -> None:
    """Call a function in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            call()
        except Exception as error:
            loop.call_soon_threadsafe(_settle, done, error)
        else:
            loop.call_soon_threadsafe(_settle, done, None)

    threading.Thread(target=run, daemon=True).start()
    await done


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
