"""The course's operating system in plain Python, as its last step has it: tasks are generators, a
task yields a system call, and the scheduler handles it.

Left as it is written there, but for what its users ran into: epoll in place of select, which knows
no more than 1024 descriptors. Sleep, Put and Get are added in its manner.
"""

import heapq
import select
import time
from collections import deque


class Task:
    taskid = 0

    def __init__(self, target):
        Task.taskid += 1
        self.tid = Task.taskid
        self.target = target
        self.sendval = None

    def run(self):
        return self.target.send(self.sendval)


class Scheduler:
    def __init__(self):
        self.ready = deque()
        self.taskmap = {}
        self.exit_waiting = {}
        self.io_waiting = {}
        self.poller = select.epoll()
        self.sleeping = []
        self.sleeps = 0

    def new(self, target):
        task = Task(target)
        self.taskmap[task.tid] = task
        self.schedule(task)
        return task.tid

    def schedule(self, task):
        self.ready.append(task)

    def exit(self, task):
        del self.taskmap[task.tid]
        for waiter in self.exit_waiting.pop(task.tid, []):
            self.schedule(waiter)

    def wait_for_exit(self, task, waittid):
        if waittid not in self.taskmap:
            return False
        self.exit_waiting.setdefault(waittid, []).append(task)
        return True

    def wait_for_io(self, task, fd, event):
        if fd in self.io_waiting:
            self.poller.modify(fd, event | select.EPOLLONESHOT)
        else:
            self.poller.register(fd, event | select.EPOLLONESHOT)
        self.io_waiting[fd] = task

    def forget_io(self, fd):
        if self.io_waiting.pop(fd, None) is not None:
            self.poller.unregister(fd)

    def wait_for_time(self, task, deadline):
        self.sleeps += 1
        heapq.heappush(self.sleeping, (deadline, self.sleeps, task))

    def poll(self):
        """Waits for devices and timers; not at all while tasks are ready."""
        timeout = None
        if self.ready:
            timeout = 0
        elif self.sleeping:
            timeout = max(0, self.sleeping[0][0] - time.monotonic())
        if self.io_waiting or timeout:
            for fd, _ in self.poller.poll(timeout):
                self.schedule(self.io_waiting[fd])
        if self.sleeping:
            now = time.monotonic()
            while self.sleeping and self.sleeping[0][0] <= now:
                self.schedule(heapq.heappop(self.sleeping)[2])

    def mainloop(self):
        ticks = 0
        while self.taskmap:
            ticks += 1
            # The course has a task that polls, and so polls once a round.
            if not self.ready or ticks % 64 == 0:
                self.poll()
                continue
            task = self.ready.popleft()
            try:
                result = task.run()
                if isinstance(result, SystemCall):
                    result.task = task
                    result.sched = self
                    result.handle()
                    continue
            except StopIteration:
                self.exit(task)
                continue
            self.schedule(task)


class SystemCall:
    def handle(self):
        pass


class GetTid(SystemCall):
    def handle(self):
        self.task.sendval = self.task.tid
        self.sched.schedule(self.task)


class NewTask(SystemCall):
    def __init__(self, target):
        self.target = target

    def handle(self):
        self.task.sendval = self.sched.new(self.target)
        self.sched.schedule(self.task)


class WaitTask(SystemCall):
    def __init__(self, tid):
        self.tid = tid

    def handle(self):
        result = self.sched.wait_for_exit(self.task, self.tid)
        self.task.sendval = result
        if not result:
            self.sched.schedule(self.task)


class ReadWait(SystemCall):
    def __init__(self, f):
        self.f = f

    def handle(self):
        self.task.sendval = None
        self.sched.wait_for_io(self.task, self.f.fileno(), select.EPOLLIN)


class WriteWait(SystemCall):
    def __init__(self, f):
        self.f = f

    def handle(self):
        self.task.sendval = None
        self.sched.wait_for_io(self.task, self.f.fileno(), select.EPOLLOUT)


class Closing(SystemCall):
    def __init__(self, f):
        self.f = f

    def handle(self):
        self.sched.forget_io(self.f.fileno())
        self.task.sendval = None
        self.sched.schedule(self.task)


class Sleep(SystemCall):
    def __init__(self, seconds):
        self.seconds = seconds

    def handle(self):
        self.task.sendval = None
        self.sched.wait_for_time(self.task, time.monotonic() + self.seconds)


class Queue:
    def __init__(self, capacity):
        self.capacity = capacity
        self.messages = deque()
        self.getting = deque()
        self.putting = deque()


class Put(SystemCall):
    def __init__(self, queue, message):
        self.queue = queue
        self.message = message

    def handle(self):
        queue = self.queue
        self.task.sendval = None
        if queue.getting:
            getter = queue.getting.popleft()
            getter.sendval = self.message
            self.sched.schedule(getter)
        elif len(queue.messages) < queue.capacity:
            queue.messages.append(self.message)
        else:
            queue.putting.append((self.task, self.message))
            return
        self.sched.schedule(self.task)


class Get(SystemCall):
    def __init__(self, queue):
        self.queue = queue

    def handle(self):
        queue = self.queue
        if not queue.messages:
            queue.getting.append(self.task)
            return
        self.task.sendval = queue.messages.popleft()
        if queue.putting:
            putter, message = queue.putting.popleft()
            queue.messages.append(message)
            self.sched.schedule(putter)
        self.sched.schedule(self.task)
