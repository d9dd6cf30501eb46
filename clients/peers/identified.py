"""For a service: saying in its answers over HTTP who it is, so that callers can verify it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from .dialing import IDENTITY

__all__ = ["Identified"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Identified:
    """ASGI middleware: every answer over HTTP bears the header `adsum-instance`, `str(registration.key)`.

    `who` gives the key, or None as long as there is none; then nothing is said:

        app.add_middleware(Identified, who=lambda: app.state.me.key)
    """

    def __init__(
        self, app: Callable[[Message, Receive, Send], Awaitable[None]], who: Callable[[], object | None]
    ) -> None:
        self._app, self._who = app, who

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One connection of the server's."""

        async def say(message: Message) -> None:
            who = self._who() if message["type"] == "http.response.start" else None
            if who is not None:
                header = (IDENTITY.encode(), str(who).encode())
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        await self._app(scope, receive, say if scope["type"] == "http" else send)
