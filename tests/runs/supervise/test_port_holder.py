"""The holder of a taken port, with a socket that really listens."""

from __future__ import annotations

import os
import socket

import pytest

from tuner_tui.runs.supervise.outcome import taken_port_evidence

TORCHRUN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: {}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)


@pytest.mark.parametrize(
    "message",
    [TORCHRUN, "RuntimeError: The server socket has failed to bind to [::]:{} (errno: 98 - Address already in use)."],
)
def test_the_process_and_a_free_port_are_named(message: str) -> None:
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        holder, free = taken_port_evidence(f"step 3\n{message.format(port)}\n")
        assert holder.startswith(f"port {port} is used by process {os.getpid()} (")
        number = int(free.removeprefix("port ").removesuffix(" is free"))
        assert number != port
        with socket.socket() as other:
            other.bind(("", number))


def test_a_port_that_was_given_back() -> None:
    with socket.socket() as held:
        held.bind(("", 0))
        port = held.getsockname()[1]
    assert taken_port_evidence(TORCHRUN.format(port))[0] == f"no visible process uses port {port} now"


@pytest.mark.parametrize("log", ["", "port: 29500 is used", "[Errno 98] Address already in use"])
def test_silence_without_a_taken_port(log: str) -> None:
    assert taken_port_evidence(log) == ()
