"""The workloads on curio."""

import os

import curio

from meter import check, cpu_time, main, resident, shuffled, span

LONG = 1_000_000


async def yield_now():
    await curio.sleep(0)


async def switch(tasks, laps):
    async def other():
        for _ in range(laps + 2):
            await yield_now()

    async def first():
        await yield_now()
        start = cpu_time()
        for _ in range(laps):
            await yield_now()
        return cpu_time() - start

    first = await curio.spawn(first)
    others = [await curio.spawn(other) for _ in range(tasks - 1)]
    time = await first.join()
    for other in others:
        await other.join()
    return [time / (tasks * laps)]


async def switch_shuffled(tasks, laps):
    gates = [curio.Event() for _ in range(tasks)]

    async def task(gate):
        await gate.wait()
        for _ in range(laps + 3):
            await yield_now()

    others = [await curio.spawn(task, gate, daemon=True) for gate in gates]
    await yield_now()

    async def first():
        for n in shuffled(tasks):
            await gates[n].set()
        await yield_now()
        start = cpu_time()
        for _ in range(laps):
            await yield_now()
        return cpu_time() - start

    first = await curio.spawn(first)
    time = await first.join()
    for other in others:
        await other.join()
    return [time / (tasks * laps)]


async def spawn(children):
    async def child():
        pass

    start = cpu_time()
    for _ in range(children):
        task = await curio.spawn(child)
        await task.join()
    return [(cpu_time() - start) / children]


async def trips(count):
    there, back = curio.Queue(1), curio.Queue(1)

    async def pong():
        while True:
            await back.put(await there.get())

    pong = await curio.spawn(pong)
    for n in range(count + 1):
        if n == 1:
            start = cpu_time()
        await there.put(n)
        check(await back.get() == n)
    time = cpu_time() - start
    await pong.cancel()
    return [time / count]


async def flow(count):
    queue = curio.Queue(64)

    async def producer():
        for n in range(count + 1):
            await queue.put(n)

    producer = await curio.spawn(producer)
    await queue.get()
    start = cpu_time()
    for n in range(1, count + 1):
        check(await queue.get() == n)
    time = cpu_time() - start
    await producer.join()
    return [time / count]


async def sleepers(tasks):
    gate = curio.Event()

    async def sleeper(n):
        await gate.wait()
        await curio.sleep(span(n))

    sleepers = [await curio.spawn(sleeper, n) for n in range(tasks)]
    await yield_now()
    start = cpu_time()
    await gate.set()
    for sleeper in sleepers:
        await sleeper.join()
    return [(cpu_time() - start) / tasks]


async def timeouts(others, count):
    for _ in range(others):
        await curio.spawn(curio.sleep, LONG, daemon=True)
    await yield_now()
    start = cpu_time()
    for _ in range(count):
        async with curio.timeout_after(3600):
            await yield_now()
    time = cpu_time() - start
    # To cancel them takes long, and is no part of it.
    print(time / count, flush=True)
    os._exit(0)


async def tell_memory(before, tasks):
    await yield_now()
    print("nan", (resident() - before) / tasks, flush=True)
    os._exit(0)


async def memory_wait(tasks):
    before = resident()
    event = curio.Event()
    for _ in range(tasks):
        await curio.spawn(event.wait, daemon=True)
    await tell_memory(before, tasks)


async def memory_sleep(tasks):
    before = resident()
    for n in range(tasks):
        await curio.spawn(curio.sleep, LONG + n / 1e6, daemon=True)
    await tell_memory(before, tasks)


async def nothing():
    pass


async def echo():
    async def client(connection, _):
        try:
            while data := await connection.recv(1024):
                await connection.sendall(data)
        except ConnectionError:
            pass

    listener = curio.network.tcp_server_socket("127.0.0.1", 0, backlog=1024)
    host, port = listener.getsockname()
    print(os.getpid(), f"{host}:{port}", flush=True)
    await curio.network.run_server(listener, client)


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


def on_curio(workload):
    return lambda *args: curio.run(workload, *args)


if __name__ == "__main__":
    main({workload.__name__: on_curio(workload) for workload in WORKLOADS})
