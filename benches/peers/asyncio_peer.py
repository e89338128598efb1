"""The workloads on Python's asyncio, with its own event loop or with uvloop's."""

import asyncio
import os
import sys

from meter import check, cpu_time, main, resident, shuffled, span

LONG = 1_000_000


async def switch(tasks, laps):
    """Every task yields in a loop; the first measures once all have started."""

    async def other():
        for _ in range(laps + 2):
            await asyncio.sleep(0)

    async def first():
        await asyncio.sleep(0)
        start = cpu_time()
        for _ in range(laps):
            await asyncio.sleep(0)
        return cpu_time() - start

    first = asyncio.create_task(first())
    others = [asyncio.create_task(other()) for _ in range(tasks - 1)]
    time = await first
    await asyncio.gather(*others)
    return [time / (tasks * laps)]


async def switch_shuffled(tasks, laps):
    """The same, with the tasks' turns in no order: they are woken so."""
    loop = asyncio.get_running_loop()
    gates = [loop.create_future() for _ in range(tasks)]

    async def task(gate):
        await gate
        for _ in range(laps + 2):
            await asyncio.sleep(0)

    async def first():
        for n in shuffled(tasks):
            gates[n].set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        start = cpu_time()
        for _ in range(laps):
            await asyncio.sleep(0)
        return cpu_time() - start

    others = [asyncio.create_task(task(gate)) for gate in gates]
    await asyncio.sleep(0)
    time = await asyncio.create_task(first())
    await asyncio.gather(*others)
    return [time / (tasks * laps)]


async def spawn(children):
    async def child():
        pass

    start = cpu_time()
    for _ in range(children):
        await asyncio.create_task(child())
    return [(cpu_time() - start) / children]


async def trips(count):
    there, back = asyncio.Queue(1), asyncio.Queue(1)

    async def pong():
        while True:
            await back.put(await there.get())

    pong = asyncio.create_task(pong())
    for n in range(count + 1):
        if n == 1:
            start = cpu_time()
        await there.put(n)
        check(await back.get() == n)
    time = cpu_time() - start
    pong.cancel()
    return [time / count]


async def flow(count):
    queue = asyncio.Queue(64)

    async def producer():
        for n in range(count + 1):
            await queue.put(n)

    producer = asyncio.create_task(producer())
    await queue.get()
    start = cpu_time()
    for n in range(1, count + 1):
        check(await queue.get() == n)
    time = cpu_time() - start
    await producer
    return [time / count]


async def sleepers(tasks):
    gate = asyncio.Event()

    async def sleeper(n):
        await gate.wait()
        await asyncio.sleep(span(n))

    sleepers = [asyncio.create_task(sleeper(n)) for n in range(tasks)]
    await asyncio.sleep(0)
    start = cpu_time()
    gate.set()
    for sleeper in sleepers:
        await sleeper
    return [(cpu_time() - start) / tasks]


async def timeouts(others, count):
    others = [asyncio.create_task(asyncio.sleep(LONG)) for _ in range(others)]
    await asyncio.sleep(0)
    start = cpu_time()
    for _ in range(count):
        async with asyncio.timeout(3600):
            await asyncio.sleep(0)
    time = cpu_time() - start
    # To cancel them takes long, and is no part of it.
    print(time / count, flush=True)
    os._exit(0)


async def memory_wait(tasks):
    before = resident()
    event = asyncio.Event()
    tell = [asyncio.create_task(event.wait()) for _ in range(tasks)]
    await asyncio.sleep(0)
    print("nan", (resident() - before) / len(tell), flush=True)
    os._exit(0)


async def memory_sleep(tasks):
    before = resident()
    tell = [asyncio.create_task(asyncio.sleep(LONG + n / 1e6)) for n in range(tasks)]
    await asyncio.sleep(0)
    print("nan", (resident() - before) / len(tell), flush=True)
    os._exit(0)


async def nothing():
    pass


async def echo():
    async def client(reader, writer):
        try:
            while data := await reader.read(1024):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(os.getpid(), f"{host}:{port}", flush=True)
    await server.serve_forever()


WORKLOADS = [
    switch,
    switch_shuffled,
    spawn,
    trips,
    flow,
    sleepers,
    timeouts,
    memory_wait,
    memory_sleep,
    nothing,
    echo,
]


def on(loop, workload):
    def run(*args):
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(workload(*args))

    return run


if __name__ == "__main__":
    loop = None
    if sys.argv[1] == "--uvloop":
        import uvloop

        loop = uvloop.new_event_loop
        del sys.argv[1]
    main({workload.__name__: on(loop, workload) for workload in WORKLOADS})
