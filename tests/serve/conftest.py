"""A server on this machine for tests with real clients: a tiny model behind the real engine process, HTTP and all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn

from swiftsure.serve.app import create_app
from swiftsure.serve.listening import listener
from swiftsure.serve.service import Service
from swiftsure.serve.settings import LaneLimits, ModelSettings, Prices, ServeSettings
from tiny_models import TinyModel, TinySpec

MODEL = "tiny"
_T = TypeVar("_T")


@dataclass
class RunningServer:
    """``on_loop`` runs a function where the server's own code runs, and returns what it returns."""

    url: str
    service: Service
    loop: asyncio.AbstractEventLoop

    def on_loop(self, work: Callable[[], _T]) -> _T:
        done: Future[_T] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(work()))
        return done.result(10)


@contextmanager
def running_server(settings: ServeSettings) -> Iterator[RunningServer]:
    """Listens on a free port, its event loop on a thread."""
    ready: Future[RunningServer] = Future()
    stop = threading.Event()

    async def main() -> None:
        service = Service(settings)
        await service.start()
        server = uvicorn.Server(listener(create_app(service), settings))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        ready.set_result(RunningServer(f"http://127.0.0.1:{port}", service, asyncio.get_running_loop()))
        while not stop.is_set():
            await asyncio.sleep(0.02)
        server.should_exit = True
        await serving
        await service.stop()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        yield ready.result(60)
    finally:
        stop.set()
        thread.join(60)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(context=4096)).write_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_settings(tiny_gguf: Path) -> Callable[..., ServeSettings]:
    """``tiny_settings(**changes)``: the tiny model in mode exact, small lanes, prices."""

    def settings(**changes: Any) -> ServeSettings:
        model = ModelSettings(name=MODEL, source=str(tiny_gguf), mode="exact", load={"threads": 1, "cache": False})
        values: dict[str, Any] = {
            "models": (model,),
            "priority": LaneLimits(requests=2, tokens=2000),
            "prices": Prices(input=1.0, output=5.0),
            "drain_s": 2.0,
            "port": 0,
        }
        return ServeSettings(**{**values, **changes})

    return settings


@pytest.fixture(scope="session")
def server(tiny_settings: Callable[..., ServeSettings]) -> Iterator[RunningServer]:
    """One for all tests that leave it as it is."""
    with running_server(tiny_settings()) as running:
        yield running
