"""A service on a real broker: questions side by side, bounded, and an end in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable, NobodyAnswers, NotYet, QuestionRefused
from adsum.events.refusals import error_of
from adsum.projector import service as module
from adsum.projector.service import Endpoint, Service
from tests.waiting import until


class Slow:
    """Answers "slow" once it may, anything else at once."""

    def __init__(self) -> None:
        self.may, self.begun = asyncio.Event(), 0

    async def answer(self, subject: str, data: bytes) -> bytes:
        if data == b"slow":
            self.begun += 1
            await self.may.wait()
        elif data == b"not yet":
            raise NotYet("no\nsuch\tmoment é")
        elif data == b"fault":
            raise ZeroDivisionError
        elif data == b"much":
            return bytes(2_000_000)
        return subject.encode() + b" " + data


@asynccontextmanager
async def serving(broker: Broker, slow: Slow) -> AsyncIterator[asyncio.Task[None]]:
    """The service, once it listens."""
    endpoint = Endpoint("one", "questions.*", slow.answer, {})
    service = Service(broker, "test", "1.0.0", "a test", {}, [endpoint])
    task = asyncio.create_task(service.run())
    await service.tried.wait()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def asking(broker: Broker) -> Callable[[bytes], asyncio.Task[bytes]]:
    async def ask(data: bytes) -> bytes:
        answer = await broker.request("questions.a", data, 20)
        error = error_of(answer.headers)
        if error is not None:
            raise error
        return answer.data

    return lambda data: asyncio.create_task(ask(data))


async def test_a_slow_question_holds_up_no_other(broker: Broker) -> None:
    slow, ask = Slow(), asking(broker)
    async with serving(broker, slow):
        first = ask(b"slow")
        await until(lambda: slow.begun)
        assert await ask(b"quick") == b"questions.a quick"
        assert not first.done()
        slow.may.set()
        assert await first == b"questions.a slow"


async def test_only_so_many_are_answered_at_a_time_and_only_so_many_wait(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    slow, ask = Slow(), asking(broker)
    async with serving(broker, slow):
        asked = [ask(b"slow") for _ in range(8)]
        refused = await until(lambda: [one for one in asked if one.done()], lambda done: len(done) == 3)
        assert slow.begun == module.AT_ONCE
        for one in refused:
            with pytest.raises(BrokerUnavailable, match="too many questions at once"):
                await one
        slow.may.set()
        answers = [await one for one in asked if one not in refused]
        assert answers == [b"questions.a slow"] * 5


async def test_what_goes_wrong_with_one_question_is_told_and_hurts_no_other(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    ask = asking(broker)
    async with serving(broker, Slow()):
        with pytest.raises(NotYet, match="no such moment é"):
            await ask(b"not yet")
        with pytest.raises(BrokerUnavailable, match="a fault of adsumd; its log tells"):
            await ask(b"fault")
        assert "ZeroDivisionError" in caplog.text
        with pytest.raises(QuestionRefused, match="the answer has 2000000 bytes, the broker takes 1048576"):
            await ask(b"much")
        assert await ask(b"") == b"questions.a "


@pytest.mark.parametrize("in_time", [True, False])
async def test_it_ends_in_order_and_soon(broker: Broker, in_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is under way is still given, if it is made within a moment; nobody listens any more then."""
    monkeypatch.setattr(module, "LAST_ANSWERS", 30.0 if in_time else 0.05)
    slow, ask = Slow(), asking(broker)
    async with serving(broker, slow) as service:
        under_way = ask(b"slow")
        await until(lambda: slow.begun)
        service.cancel()

        async def deaf() -> bool:
            try:
                await broker.request("questions.a", b"", 0.5)
            except NobodyAnswers:
                return True
            except BrokerUnavailable:  # it was on its way when the service stopped to listen
                return False
            return False

        await until(deaf)
        if in_time:
            assert not service.done()
            slow.may.set()
            assert await under_way == b"questions.a slow"
        async with asyncio.timeout(10):
            await asyncio.gather(service, return_exceptions=True)
        assert service.cancelled()
        under_way.cancel()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("answer")] == []


async def test_of_two_one_answers(broker: Broker) -> None:
    heard: list[bytes] = []

    class Counting(Slow):
        async def answer(self, subject: str, data: bytes) -> bytes:
            heard.append(data)
            return b""

    async with serving(broker, Counting()), serving(broker, Counting()):
        for number in range(20):
            await asking(broker)(b"%d" % number)
    assert heard == [b"%d" % number for number in range(20)]
