// The Go side of the benchmarks.
//
// The first argument names a benchmark, the others are its numbers. Timed benchmarks read how often
// to do the operation, a number on a line, and answer with nanoseconds and operations; the others
// print one figure on a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Results go here, so that the compiler keeps the work.
var sink uint64

// How long things are left to calm down before they are looked at.
const calm = 200 * time.Millisecond

func main() {
	if len(os.Args) < 2 {
		fail("which benchmark?")
	}
	numbers := os.Args[2:]
	number := func(index int) uint64 {
		if index >= len(numbers) {
			fail("a number is missing")
		}
		value, err := strconv.ParseUint(numbers[index], 10, 64)
		if err != nil {
			fail(err.Error())
		}
		return value
	}
	switch os.Args[1] {
	case "yield":
		goroutines := number(0)
		serve(func(count uint64) (time.Duration, uint64) { return yield(goroutines, count) })
	case "spawn_seq":
		serve(spawnSeq)
	case "spawn_batch":
		batch := number(0)
		serve(func(count uint64) (time.Duration, uint64) { return spawnBatch(batch, count) })
	case "fork_join":
		depth, steps := number(0), number(1)
		serve(repeat(func() { sink += tree(depth, 0, steps) }))
	case "skynet":
		leaves, children, sum := number(0), number(1), number(2)
		serve(repeat(func() {
			result := make(chan uint64)
			go skynet(result, 0, leaves, children)
			if got := <-result; got != sum {
				fail(fmt.Sprintf("the sum is %d, not %d", got, sum))
			}
		}))
	case "migrate":
		crowd, waits, steps := number(0), number(1), number(2)
		serve(repeat(func() { migrate(crowd, waits, steps) }))
	case "crowds":
		crowds()
	case "sleep":
		nap := time.Duration(number(0)) * time.Microsecond
		serve(repeat(func() { time.Sleep(nap) }))
	case "memory":
		count := number(0)
		before := memory()
		sleepers(count)
		time.Sleep(calm)
		fmt.Println(float64(memory()-before) / float64(count))
	case "memory_spawn_time":
		count := number(0)
		start := time.Now()
		sleepers(count)
		fmt.Println(float64(time.Since(start).Nanoseconds()) / float64(count))
	case "idle":
		sleepers(number(0))
		time.Sleep(calm)
		before := cpu()
		time.Sleep(time.Duration(number(1)) * time.Millisecond)
		fmt.Println((cpu() - before).Seconds() * 1e3)
	case "timers":
		timers(number(0), number(1))
	case "pipe":
		serve(pipes)
	case "echo":
		serveEcho(number(0), number(1))
	case "http_hello":
		serveHTTP(respondHello)
	case "http_json":
		serveHTTP(respondJSON)
	default:
		if work, ok := syncBenchmarks[os.Args[1]]; ok {
			serve(work)
			return
		}
		fail("there is no benchmark " + os.Args[1])
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}

func serve(work func(count uint64) (time.Duration, uint64)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		count, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			fail(err.Error())
		}
		elapsed, operations := work(count)
		fmt.Println(elapsed.Nanoseconds(), operations)
	}
}

func repeat(work func()) func(uint64) (time.Duration, uint64) {
	return func(count uint64) (time.Duration, uint64) {
		start := time.Now()
		for n := uint64(0); n < count; n++ {
			work()
		}
		return time.Since(start), count
	}
}

func yield(goroutines, count uint64) (time.Duration, uint64) {
	each := (count + goroutines - 1) / goroutines
	var arrived uint64
	var open uint32
	var done sync.WaitGroup
	done.Add(int(goroutines))
	for n := uint64(0); n < goroutines; n++ {
		go func() {
			atomic.AddUint64(&arrived, 1)
			for atomic.LoadUint32(&open) == 0 {
				runtime.Gosched()
			}
			for k := uint64(0); k < each; k++ {
				runtime.Gosched()
			}
			done.Done()
		}()
	}
	for atomic.LoadUint64(&arrived) < goroutines {
		runtime.Gosched()
	}
	start := time.Now()
	atomic.StoreUint32(&open, 1)
	done.Wait()
	return time.Since(start), each * goroutines
}

// One channel for all is faster than one for each.
func spawnSeq(count uint64) (time.Duration, uint64) {
	result := make(chan uint64, 1)
	start := time.Now()
	for n := uint64(0); n < count; n++ {
		go func(n uint64) { result <- n }(n)
		sink += <-result
	}
	return time.Since(start), count
}

func spawnBatch(batch, count uint64) (time.Duration, uint64) {
	batches := (count + batch - 1) / batch
	results := make([]uint64, batch)
	start := time.Now()
	for n := uint64(0); n < batches; n++ {
		var done sync.WaitGroup
		done.Add(int(batch))
		for k := uint64(0); k < batch; k++ {
			go func(k uint64) {
				results[k] = k
				done.Done()
			}(k)
		}
		done.Wait()
	}
	return time.Since(start), batches * batch
}

// The same work as in Rust: each step needs the one before.
//
//go:noinline
func mix(seed, steps uint64) uint64 {
	value := seed | 1
	for n := uint64(0); n < steps; n++ {
		value = (value ^ (value >> 32)) * 0xd6e8feb86659fd93
	}
	return value
}

func tree(depth, index, steps uint64) uint64 {
	if depth == 0 {
		return mix(index, steps)
	}
	right := make(chan uint64, 1)
	go func() { right <- tree(depth-1, 2*index+1, steps) }()
	left := tree(depth-1, 2*index, steps)
	return left + <-right
}

func skynet(result chan<- uint64, first, leaves, children uint64) {
	if leaves == 1 {
		result <- first
		return
	}
	below := make(chan uint64)
	share := leaves / children
	for n := uint64(0); n < children; n++ {
		go skynet(below, first+n*share, share, children)
	}
	sum := uint64(0)
	for n := uint64(0); n < children; n++ {
		sum += <-below
	}
	result <- sum
}

func migrate(crowd, waits, steps uint64) {
	var done sync.WaitGroup
	done.Add(int(crowd))
	for n := uint64(0); n < crowd; n++ {
		go func(n uint64) {
			for k := uint64(0); k < waits; k++ {
				runtime.Gosched()
				atomic.StoreUint64(&sink, mix(n, steps))
			}
			done.Done()
		}(n)
	}
	done.Wait()
}

// Reads crowds, one on a line, and prints how many nanoseconds each took. Goroutines are separated
// by semicolons. A turn is two numbers: microseconds to sleep, and steps to compute.
func crowds() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var crowd [][]uint64
		for _, fiber := range strings.Split(lines.Text(), ";") {
			var numbers []uint64
			for _, word := range strings.Fields(fiber) {
				number, err := strconv.ParseUint(word, 10, 64)
				if err != nil {
					fail(err.Error())
				}
				numbers = append(numbers, number)
			}
			crowd = append(crowd, numbers)
		}
		var done sync.WaitGroup
		done.Add(len(crowd))
		start := time.Now()
		for _, turns := range crowd {
			go func(turns []uint64) {
				for k := 0; k < len(turns); k += 2 {
					if turns[k] == 0 {
						runtime.Gosched()
					} else {
						time.Sleep(time.Duration(turns[k]) * time.Microsecond)
					}
					atomic.StoreUint64(&sink, mix(1, turns[k+1]))
				}
				done.Done()
			}(turns)
		}
		done.Wait()
		fmt.Println(time.Since(start).Nanoseconds())
	}
}

// Starts goroutines that sleep, and returns when they do.
func sleepers(count uint64) {
	var asleep uint64
	for n := uint64(0); n < count; n++ {
		go func() {
			atomic.AddUint64(&asleep, 1)
			time.Sleep(time.Hour)
		}()
	}
	for atomic.LoadUint64(&asleep) < count {
		runtime.Gosched()
	}
}

func timers(count, sleeps uint64) {
	before := cpu()
	late := make([]float32, count*sleeps)
	var done sync.WaitGroup
	done.Add(int(count))
	for n := uint64(0); n < count; n++ {
		go func(n uint64) {
			state := mix(2*n+1, 4)
			for k := uint64(0); k < sleeps; k++ {
				state = mix(state, 1)
				nap := time.Duration(1000+(state>>33)%99001) * time.Microsecond
				start := time.Now()
				time.Sleep(nap)
				late[n*sleeps+k] = float32((time.Since(start) - nap).Seconds() * 1e6)
			}
			done.Done()
		}(n)
	}
	done.Wait()
	used := cpu() - before
	// The second half of each: the first ones end while other goroutines are still being made.
	var settled []float32
	for n := uint64(0); n < count; n++ {
		settled = append(settled, late[n*sleeps+sleeps/2:(n+1)*sleeps]...)
	}
	fmt.Println(used.Seconds() * 1e3)
	fmt.Println(p99(late))
	fmt.Println(p99(settled))
}

func p99(late []float32) float32 {
	sort.Slice(late, func(a, b int) bool { return late[a] < late[b] })
	return late[len(late)*99/100]
}

// Processor time of this process, of user and system.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err.Error())
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Resident memory and page tables of this process, in bytes.
func memory() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err.Error())
	}
	total := uint64(0)
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "VmPTE:") {
			kib, err := strconv.ParseUint(strings.Fields(line)[1], 10, 64)
			if err != nil {
				fail(err.Error())
			}
			total += 1024 * kib
		}
	}
	return total
}
