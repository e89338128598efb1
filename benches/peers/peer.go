// The workloads in Go, on one processor: goroutines share plain variables.
package main

import (
	"fmt"
	"math"
	"math/rand"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const long = 1_000_000 * time.Second

// The CPU time of the process in nanoseconds, the garbage collector's included.
func cpuTime() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}

func resident() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmRSS:") {
			kib, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			if err != nil {
				panic(err)
			}
			return 1024 * kib
		}
	}
	panic("there is no line VmRSS")
}

// Whole milliseconds up to a second, in no order.
func span(n int) time.Duration {
	return time.Duration(1+n*7919%1000) * time.Millisecond
}

// Every goroutine yields in a loop; main measures once all have started. As they can be preempted
// while they are made, their turns are counted.
func yields(tasks, laps int) float64 {
	started, turns := 0, 0
	stop := false
	for n := 1; n < tasks; n++ {
		go func() {
			started++
			for !stop {
				turns++
				runtime.Gosched()
			}
		}()
	}
	for started < tasks-1 {
		runtime.Gosched()
	}
	turns = 0
	start := cpuTime()
	for n := 0; n < laps; n++ {
		runtime.Gosched()
	}
	time := cpuTime() - start
	stop = true
	return time / float64(turns+laps)
}

// The same, with the turns in no order: they are woken so.
func yieldsShuffled(tasks, laps int) float64 {
	gates := make([]chan struct{}, tasks)
	started, turns := 0, 0
	stop := false
	for n := range gates {
		gate := make(chan struct{})
		gates[n] = gate
		go func() {
			<-gate
			started++
			for !stop {
				turns++
				runtime.Gosched()
			}
		}()
	}
	for _, n := range rand.New(rand.NewSource(1)).Perm(tasks) {
		close(gates[n])
	}
	for started < tasks {
		runtime.Gosched()
	}
	turns = 0
	start := cpuTime()
	for n := 0; n < laps; n++ {
		runtime.Gosched()
	}
	time := cpuTime() - start
	stop = true
	return time / float64(turns+laps)
}

func spawn(children int) float64 {
	done := make(chan struct{})
	start := cpuTime()
	for n := 0; n < children; n++ {
		go func() { done <- struct{}{} }()
		<-done
	}
	return (cpuTime() - start) / float64(children)
}

func trips(count int) float64 {
	there, back := make(chan int, 1), make(chan int, 1)
	go func() {
		for n := range there {
			back <- n
		}
	}()
	start := 0.0
	for n := 0; n <= count; n++ {
		if n == 1 {
			start = cpuTime()
		}
		there <- n
		if <-back != n {
			panic("another message came back")
		}
	}
	return (cpuTime() - start) / float64(count)
}

func flow(count int) float64 {
	queue := make(chan int, 64)
	go func() {
		for n := 0; n <= count; n++ {
			queue <- n
		}
	}()
	<-queue
	start := cpuTime()
	for n := 1; n <= count; n++ {
		if <-queue != n {
			panic("another message came")
		}
	}
	return (cpuTime() - start) / float64(count)
}

func sleepers(tasks int) float64 {
	gate, done := make(chan struct{}), make(chan struct{}, tasks)
	for n := 0; n < tasks; n++ {
		n := n
		go func() {
			<-gate
			time.Sleep(span(n))
			done <- struct{}{}
		}()
	}
	runtime.Gosched()
	start := cpuTime()
	close(gate)
	for n := 0; n < tasks; n++ {
		<-done
	}
	return (cpuTime() - start) / float64(tasks)
}

func timeouts(others, count int) float64 {
	for n := 0; n < others; n++ {
		go time.Sleep(long)
	}
	runtime.Gosched()
	start := cpuTime()
	for n := 0; n < count; n++ {
		timer := time.NewTimer(time.Hour)
		runtime.Gosched()
		timer.Stop()
	}
	return (cpuTime() - start) / float64(count)
}

func memory(tasks int, wait func(n int)) float64 {
	before := resident()
	for n := 0; n < tasks; n++ {
		n := n
		go wait(n)
	}
	time.Sleep(time.Second)
	return (resident() - before) / float64(tasks)
}

func echo() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(os.Getpid(), listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 1024)
			for {
				n, err := connection.Read(buffer)
				if err != nil {
					return
				}
				if _, err := connection.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	var numbers []int
	for _, arg := range os.Args[2:] {
		number, err := strconv.Atoi(arg)
		if err != nil {
			panic(err)
		}
		numbers = append(numbers, number)
	}
	switch os.Args[1] {
	case "switch":
		fmt.Println(yields(numbers[0], numbers[1]))
	case "switch_shuffled":
		fmt.Println(yieldsShuffled(numbers[0], numbers[1]))
	case "spawn":
		fmt.Println(spawn(numbers[0]))
	case "trips":
		fmt.Println(trips(numbers[0]))
	case "flow":
		fmt.Println(flow(numbers[0]))
	case "sleepers":
		fmt.Println(sleepers(numbers[0]))
	case "timeouts":
		fmt.Println(timeouts(numbers[0], numbers[1]))
	case "memory_wait":
		gate := make(chan struct{})
		fmt.Println(math.NaN(), memory(numbers[0], func(int) { <-gate }))
	case "memory_sleep":
		fmt.Println(math.NaN(), memory(numbers[0], func(n int) {
			time.Sleep(long + time.Duration(n)*time.Microsecond)
		}))
	case "nothing":
	case "echo":
		echo()
	default:
		panic("there is no workload " + os.Args[1])
	}
}
