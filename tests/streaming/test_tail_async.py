"""Following a table from a coroutine."""

import asyncio
import itertools
import threading
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import StorageError
from anabranch.kernel.log.consumers import find_consumer
from anabranch.runtime import Runtime, ThreadSleeper
from tests.support.faults import FaultyStorage, run
from tests.support.tables import make_table, rows

_names = itertools.count()


@pytest.fixture
def table():
    return make_table(f"memory://async{next(_names)}")


def seen(table, *faults, sleeper=None):
    """The table through a store with faults."""
    storage = FaultyStorage(table.context.storage, faults)
    runtime = Runtime(sleeper=sleeper or ThreadSleeper())
    return anabranch.Table(replace(table.context, storage=storage, runtime=runtime))


async def ids(tail):
    return [i async for batch in tail for i in batch["id"].to_pylist()]


def by_the_tail():
    """Whether this is the thread in which a tail reads, and not that of the event loop."""
    return threading.current_thread().name.startswith("anabranch-tail")


class Pauses:
    """Time that passes only when somebody waits; `between` happens meanwhile."""

    def __init__(self, between=()):
        self.between = list(between)
        self.seconds = []

    def sleep(self, seconds):
        raise AssertionError("the event loop is held up")

    async def pause(self, seconds):
        self.seconds.append(seconds)
        await asyncio.sleep(0)
        if self.between:
            self.between.pop(0)()


def test_the_same_batches_as_without_a_loop(table):
    for number in range(3):
        table.append(rows(2 * number, 2))
    assert asyncio.run(ids(table.tail(idle=0))) == [0, 1, 2, 3, 4, 5]
    assert asyncio.run(ids(table.tail(idle=0, start=2, columns=["id"], filter="id > 2"))) == [3, 4, 5]


def test_it_waits_for_what_comes(table):
    table.append(rows(0, 1))
    pauses = Pauses([lambda: None, lambda: table.append(rows(1, 1)), lambda: None])

    async def follow():
        tail = aiter(seen(table, sleeper=pauses).tail())
        return [(await anext(tail))["id"].to_pylist() for _ in range(2)]

    assert asyncio.run(follow()) == [[0], [1]]
    assert pauses.seconds == [0.05, 0.1]


def test_storage_is_read_in_a_thread_of_its_own(table):
    table.append(rows(0, 1))
    threads = set()
    reading = run("before", "get", lambda path: threads.add(threading.current_thread().name), times=10**6)

    async def follow():
        tail = seen(table, reading).tail(idle=0)
        threads.clear()
        return await ids(tail)

    assert asyncio.run(follow()) == [0]
    assert threads
    assert all(name.startswith("anabranch-") for name in threads)


def test_the_loop_goes_on_while_storage_is_slow(table):
    table.append(rows(0, 1))
    asked, answer = threading.Event(), threading.Event()

    def slow(path):
        if by_the_tail():
            asked.set()
            assert answer.wait(60)

    async def follow():
        tail = seen(table, run("before", "get", slow, where="*snapshot-*", times=10**6)).tail(idle=0)
        reading = asyncio.create_task(ids(tail))
        assert await asyncio.to_thread(asked.wait, 60)
        assert not reading.done()
        answer.set()
        return await reading

    assert asyncio.run(follow()) == [0]


def test_the_consumer_moves_on_when_the_caller_comes_back(table):
    for number in range(3):
        table.append(rows(number, 1))

    async def follow():
        tail = table.tail("job", start=1, max_files=1, idle=0)
        return [find_consumer(table.context, "job").next_snapshot async for _ in tail]

    assert asyncio.run(follow()) == [1, 2, 3]
    assert find_consumer(table.context, "job").next_snapshot == 4


def test_a_cancelled_task_has_not_worked_through_what_it_got_last(table):
    for number in range(3):
        table.append(rows(number, 1))

    async def follow(second):
        async for batch in table.tail("job", start=1, max_files=1):
            if batch["id"].to_pylist() == [1]:
                second.set()
                await asyncio.Event().wait()

    async def cancelled():
        second = asyncio.Event()
        task = asyncio.create_task(follow(second))
        await second.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert asyncio.run(ids(table.tail("job", idle=0))) == [1, 2]


def test_cancelling_while_the_store_is_slow_is_at_once(table):
    table.append(rows(0, 1))
    asked, answer = threading.Event(), threading.Event()

    def slow(path):
        if by_the_tail():
            asked.set()
            assert answer.wait(60)

    before = set(threading.enumerate())

    async def cancelled():
        tail = seen(table, run("before", "get", slow, where="*snapshot-*", times=10**6)).tail(idle=0)
        task = asyncio.create_task(ids(tail))
        await asyncio.to_thread(asked.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # although the store has not answered

    try:
        asyncio.run(cancelled())
    finally:
        answer.set()
    for thread in set(threading.enumerate()) - before:  # what was begun ends by itself
        if thread.name.startswith("anabranch-tail"):
            thread.join(60)
            assert not thread.is_alive()


def test_cancelling_while_it_waits_is_at_once(table):
    class Forever(Pauses):
        async def pause(self, seconds):
            waiting.set()
            await asyncio.Event().wait()

    async def cancelled():
        task = asyncio.create_task(ids(seen(table, sleeper=Forever()).tail()))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    waiting = asyncio.Event()
    asyncio.run(cancelled())


def test_an_error_of_the_store_reaches_the_caller_and_the_tail_goes_on_after_it(table):
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    failures = itertools.count()

    def broken(path):
        if by_the_tail() and next(failures) == 0:
            raise StorageError(f"the test made {path} fail", retryable=True)

    async def follow():
        tail = seen(table, run("before", "get", broken, where="*snapshot-2", times=10**6)).tail(
            "job", start=1, max_files=1, idle=0
        )
        with pytest.raises(StorageError, match="snapshot-2"):
            await ids(tail)
        return await ids(tail)

    assert asyncio.run(follow()) == [0, 1]
