"""What is measured: CPU time and memory, as the Rust side measures them."""

import sys
import time

cpu_time = time.process_time_ns


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return 1024 * int(line.split()[1])


def check(holds):
    """An assert that stays where asserts are left out."""
    if not holds:
        raise AssertionError("another message came")


def span(n):
    """Seconds to sleep: whole milliseconds up to a second, in no order."""
    return (1 + n * 7919 % 1000) / 1000


def shuffled(count):
    """The numbers up to `count` in an order that is the same each time."""
    from random import Random

    order = list(range(count))
    Random(1).shuffle(order)
    return order


def main(workloads):
    """Runs the workload that the arguments name, with numbers, and prints its figures."""
    name, *numbers = sys.argv[1:]
    figures = workloads[name](*map(int, numbers))
    if figures is not None:
        print(*figures, flush=True)
