"""A Flight server to be called, in this process or one of its own: `python -m tests.peers.flight_callee PORT KEY`.

Actions: "echo", "hang" (for seconds), "fail" with the name of an error; a ticket is how many batches, and "slow" behind
it has them come at intervals. It prints a line for each action and stream.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow
from pyarrow import flight

from adsum.clients.peers import IDENTITY

SCHEMA = pyarrow.schema([("number", pyarrow.int64())])


def table(rows: int) -> pyarrow.Table:
    """A table of that many rows."""
    return pyarrow.table({"number": pyarrow.array(range(rows), pyarrow.int64())})


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Serves on loopback; says that it is `key`, or knows no such action."""

    def __init__(self, key: str = "", port: int = 0, **more: Any) -> None:
        scheme = "grpc+tls" if "tls_certificates" in more else "grpc"
        super().__init__(f"{scheme}://127.0.0.1:{port}", **more)
        self.key, self.asked, self.put = key, list[str](), list[pyarrow.Table]()
        self.ended, self.yielded = threading.Event(), 0
        self.stop_waiting = threading.Event()

    def _heard(self, what: str) -> None:
        self.asked.append(what)
        print(f"called {what}", flush=True)

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        self._heard(action.type)
        body = action.body.to_pybytes()
        match action.type:
            case "echo":
                return [body]
            case "hang":
                self.stop_waiting.wait(float(body))
                return [b"late"]
            case "fail":
                raise getattr(flight, body.decode())("so it is")
            case "tell":
                raise flight.FlightUnavailableError(body.decode())
            case _ if action.type == IDENTITY and self.key:
                return [self.key.encode()]
        raise KeyError(action.type)

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        self._heard("get")
        many, _, slow = ticket.ticket.decode().partition(" ")
        return flight.GeneratorStream(SCHEMA, self._batches(int(many), bool(slow), context))

    def _batches(self, many: int, slow: bool, context: Any) -> Iterator[pyarrow.RecordBatch]:
        try:
            for number in range(many):
                self.yielded += 1
                yield pyarrow.record_batch([pyarrow.array([number] * 10, pyarrow.int64())], schema=SCHEMA)
                if slow and (self.stop_waiting.wait(0.05) or context.is_cancelled()):
                    return
        finally:
            self.ended.set()

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self.put.append(reader.read_all())

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        return flight.FlightInfo(SCHEMA, descriptor, [flight.FlightEndpoint(b"3", [])], 30, 240)

    def __exit__(self, *error: object) -> None:
        self.stop_waiting.set()
        super().__exit__(*error)


if __name__ == "__main__":
    served = Server(sys.argv[2], int(sys.argv[1]))
    print("listening", flush=True)
    served.serve()
