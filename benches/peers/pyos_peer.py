"""The workloads on the course's kernel in plain Python.

It has no timeouts, so it takes no part where they are measured.
"""

import os
import socket

from meter import check, cpu_time, main, resident, shuffled, span
from pyos import (
    Closing,
    Get,
    GetTid,
    NewTask,
    Put,
    Queue,
    ReadWait,
    Scheduler,
    Sleep,
    WaitTask,
    WriteWait,
)

LONG = 1_000_000


def run(*targets):
    """Runs tasks to their ends."""
    scheduler = Scheduler()
    for target in targets:
        scheduler.new(target)
    scheduler.mainloop()


def switch(tasks, laps):
    times = []

    def first():
        yield GetTid()
        start = cpu_time()
        for _ in range(laps):
            yield GetTid()
        times.append(cpu_time() - start)

    def other():
        for _ in range(laps + 2):
            yield GetTid()

    run(first(), *(other() for _ in range(tasks - 1)))
    return [times[0] / (tasks * laps)]


def switch_shuffled(tasks, laps):
    times = []
    gates = [Queue(1) for _ in range(tasks)]

    def opener():
        for n in shuffled(tasks):
            yield Put(gates[n], None)

    def other(gate):
        yield Get(gate)
        # In the order in which they were let through.
        yield WaitTask(tid)
        for _ in range(laps + 2):
            yield GetTid()

    def meter():
        yield WaitTask(tid)
        yield GetTid()
        start = cpu_time()
        for _ in range(laps):
            yield GetTid()
        times.append(cpu_time() - start)

    scheduler = Scheduler()
    tid = scheduler.new(opener())
    for gate in gates:
        scheduler.new(other(gate))
    scheduler.new(meter())
    scheduler.mainloop()
    return [times[0] / (tasks * laps)]


def spawn(children):
    times = []

    def child():
        return
        yield

    def parent():
        start = cpu_time()
        for _ in range(children):
            tid = yield NewTask(child())
            yield WaitTask(tid)
        times.append(cpu_time() - start)

    run(parent())
    return [times[0] / children]


def trips(count):
    times = []
    there, back = Queue(1), Queue(1)

    def pong():
        for _ in range(count + 1):
            yield Put(back, (yield Get(there)))

    def ping():
        for n in range(count + 1):
            if n == 1:
                start = cpu_time()
            yield Put(there, n)
            check((yield Get(back)) == n)
        times.append(cpu_time() - start)

    run(ping(), pong())
    return [times[0] / count]


def flow(count):
    times = []
    queue = Queue(64)

    def producer():
        for n in range(count + 1):
            yield Put(queue, n)

    def consumer():
        yield Get(queue)
        start = cpu_time()
        for n in range(1, count + 1):
            check((yield Get(queue)) == n)
        times.append(cpu_time() - start)

    run(consumer(), producer())
    return [times[0] / count]


def sleepers(tasks):
    times = []

    def first():
        yield GetTid()
        times.append(cpu_time())

    def sleeper(n):
        yield GetTid()
        yield Sleep(span(n))

    run(first(), *(sleeper(n) for n in range(tasks)))
    return [(cpu_time() - times[0]) / tasks]


def memory(wait, tasks):
    scheduler = Scheduler()
    before = resident()

    def sleeper():
        yield Sleep(LONG)

    def meter():
        yield GetTid()
        print("nan", (resident() - before) / tasks, flush=True)
        os._exit(0)

    def task(n):
        yield wait(tid, n)

    tid = scheduler.new(sleeper())
    for n in range(tasks):
        scheduler.new(task(n))
    scheduler.new(meter())
    scheduler.mainloop()


def memory_wait(tasks):
    memory(lambda tid, n: WaitTask(tid), tasks)


def memory_sleep(tasks):
    memory(lambda tid, n: Sleep(LONG + n / 1e6), tasks)


def nothing():
    run(_ for _ in ())


def echo():
    def client(connection):
        try:
            while True:
                yield ReadWait(connection)
                data = connection.recv(1024)
                if not data:
                    break
                while data:
                    yield WriteWait(connection)
                    data = data[connection.send(data) :]
        except ConnectionError:
            pass
        yield Closing(connection)
        connection.close()

    def server():
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        host, port = listener.getsockname()
        print(os.getpid(), f"{host}:{port}", flush=True)
        while True:
            yield ReadWait(listener)
            connection, _ = listener.accept()
            yield NewTask(client(connection))

    run(server())


WORKLOADS = [
    switch,
    switch_shuffled,
    spawn,
    trips,
    flow,
    sleepers,
    memory_wait,
    memory_sleep,
    nothing,
    echo,
]

if __name__ == "__main__":
    main({workload.__name__: workload for workload in WORKLOADS})
