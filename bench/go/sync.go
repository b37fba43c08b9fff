// Locks, signals and channels.

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var syncBenchmarks = map[string]func(uint64) (time.Duration, uint64){
	"mutex_uncontended": mutexUncontended,
	"mutex_handoff":     func(count uint64) (time.Duration, uint64) { return mutexHandoff(2, true, count) },
	"mutex_handoff_64":  func(count uint64) (time.Duration, uint64) { return mutexHandoff(rivals, false, count) },
	"mutex_contended":   mutexContended,
	"rwlock_read":       rwlockRead,
	"channel_mpmc":      channelMpmc,
	"pingpong":          pingpong,
	"pingpong_locked":   pingpongLocked,
	"pingpong_busy":     pingpongBusy,
	"future":            future,
	"condvar":           condvar,
	"semaphore":         semaphore,
	"multilock":         multilock,
	"sequencer":         sequencer,
	"select":            selecting,
}

// Goroutines that want one lock, those that read under one, those that talk over one channel, and
// what that holds.
const rivals, readers, talkers, room = 64, 8, 8, 64

// The key that is locked, in multilock.
const key = 7

// Goroutines do something together; each is told its number.
func crowd(goroutines uint64, work func(number uint64)) time.Duration {
	var arrived uint64
	var open uint32
	var done sync.WaitGroup
	done.Add(int(goroutines))
	for n := uint64(0); n < goroutines; n++ {
		go func(n uint64) {
			atomic.AddUint64(&arrived, 1)
			for atomic.LoadUint32(&open) == 0 {
				runtime.Gosched()
			}
			work(n)
			done.Done()
		}(n)
	}
	for atomic.LoadUint64(&arrived) < goroutines {
		runtime.Gosched()
	}
	start := time.Now()
	atomic.StoreUint32(&open, 1)
	done.Wait()
	return time.Since(start)
}

func mutexContended(count uint64) (time.Duration, uint64) {
	each := (count + rivals - 1) / rivals
	var mutex sync.Mutex
	counter := uint64(0)
	elapsed := crowd(rivals, func(uint64) {
		for n := uint64(0); n < each; n++ {
			mutex.Lock()
			counter++
			mutex.Unlock()
		}
	})
	if counter != rivals*each {
		fail("some increments are lost")
	}
	return elapsed, rivals * each
}

func rwlockRead(count uint64) (time.Duration, uint64) {
	each := (count + readers - 1) / readers
	var lock sync.RWMutex
	value := uint64(1)
	elapsed := crowd(readers, func(uint64) {
		sum := uint64(0)
		for n := uint64(0); n < each; n++ {
			lock.RLock()
			sum += value
			lock.RUnlock()
		}
		atomic.AddUint64(&sink, sum)
	})
	return elapsed, readers * each
}

func channelMpmc(count uint64) (time.Duration, uint64) {
	each := (count + talkers/2 - 1) / (talkers / 2)
	channel := make(chan uint64, room)
	elapsed := crowd(talkers, func(number uint64) {
		sum := uint64(0)
		for n := uint64(0); n < each; n++ {
			if number%2 == 0 {
				channel <- n
			} else {
				sum += <-channel
			}
		}
		atomic.AddUint64(&sink, sum)
	})
	return elapsed, each * talkers / 2
}

func mutexUncontended(count uint64) (time.Duration, uint64) {
	var mutex sync.Mutex
	start := time.Now()
	for n := uint64(0); n < count; n++ {
		mutex.Lock()
		sink++
		mutex.Unlock()
	}
	return time.Since(start), count
}

// Goroutines hold a lock across a yield; with pauses, they also yield without it: for each change of
// hands.
func mutexHandoff(goroutines int, pauses bool, count uint64) (time.Duration, uint64) {
	var mutex sync.Mutex
	var done sync.WaitGroup
	last, changes := 0, uint64(0)
	start := time.Now()
	for me := 1; me <= goroutines; me++ {
		done.Add(1)
		go func(me int) {
			defer done.Done()
			for {
				mutex.Lock()
				if last != me {
					last = me
					changes++
				}
				if changes >= count {
					mutex.Unlock()
					return
				}
				runtime.Gosched()
				mutex.Unlock()
				if pauses {
					runtime.Gosched()
				}
			}
		}(me)
	}
	done.Wait()
	return time.Since(start), count
}

func pingpong(count uint64) (time.Duration, uint64) {
	there, back := make(chan uint64, 1), make(chan uint64, 1)
	go func() {
		for message := range there {
			back <- message
		}
	}()
	start := time.Now()
	for n := uint64(0); n < count; n++ {
		there <- n
		sink += <-back
	}
	elapsed := time.Since(start)
	close(there)
	return elapsed, count
}

// The same between two threads: each goroutine has one of its own.
func pingpongLocked(count uint64) (elapsed time.Duration, operations uint64) {
	there, back := make(chan uint64, 1), make(chan uint64, 1)
	go func() {
		runtime.LockOSThread()
		for message := range there {
			back <- message
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	for n := uint64(0); n < count; n++ {
		there <- n
		sink += <-back
	}
	elapsed = time.Since(start)
	close(there)
	return elapsed, count
}

// As pingpong, with two goroutines more that yield all the time.
func pingpongBusy(count uint64) (time.Duration, uint64) {
	var stop uint32
	var done sync.WaitGroup
	done.Add(2)
	for n := 0; n < 2; n++ {
		go func() {
			for atomic.LoadUint32(&stop) == 0 {
				runtime.Gosched()
			}
			done.Done()
		}()
	}
	elapsed, operations := pingpong(count)
	atomic.StoreUint32(&stop, 1)
	done.Wait()
	return elapsed, operations
}

// Two goroutines in turn, each of which waits so many times for what the other does.
func two(count uint64, work func(me, each uint64)) (time.Duration, uint64) {
	each := (count + 1) / 2
	var done sync.WaitGroup
	done.Add(2)
	start := time.Now()
	for me := uint64(0); me < 2; me++ {
		go func(me uint64) {
			work(me, each)
			done.Done()
		}(me)
	}
	done.Wait()
	return time.Since(start), 2 * each
}

// A channel for one message, which is the other's channel.
type turn chan turn

func (other turn) pass() turn {
	mine := make(turn, 1)
	other <- mine
	return <-mine
}

func future(count uint64) (time.Duration, uint64) {
	first := make(turn, 1)
	return two(count, func(me, each uint64) {
		if me == 0 {
			other := first
			for n := uint64(0); n < each; n++ {
				other = other.pass()
			}
		} else {
			other := <-first
			for n := uint64(1); n < each; n++ {
				other = other.pass()
			}
			other <- nil
		}
	})
}

func condvar(count uint64) (time.Duration, uint64) {
	var mutex sync.Mutex
	changed := sync.NewCond(&mutex)
	turn := uint64(0)
	return two(count, func(me, each uint64) {
		for n := uint64(0); n < each; n++ {
			mutex.Lock()
			for turn != me {
				changed.Wait()
			}
			turn = 1 - me
			changed.Signal()
			mutex.Unlock()
		}
	})
}

func semaphore(count uint64) (time.Duration, uint64) {
	permits := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	permits[0] <- struct{}{}
	return two(count, func(me, each uint64) {
		for n := uint64(0); n < each; n++ {
			<-permits[me]
			permits[1-me] <- struct{}{}
		}
	})
}

// As mutexHandoff, with the lock of a key.
func multilock(count uint64) (time.Duration, uint64) {
	var mutex sync.Mutex
	locks := make(map[uint64]*sync.Mutex)
	var done sync.WaitGroup
	last, changes := 0, uint64(0)
	start := time.Now()
	for me := 1; me <= 2; me++ {
		done.Add(1)
		go func(me int) {
			defer done.Done()
			for {
				mutex.Lock()
				lock, ok := locks[key]
				if !ok {
					lock = new(sync.Mutex)
					locks[key] = lock
				}
				mutex.Unlock()
				lock.Lock()
				if last != me {
					last = me
					changes++
				}
				if changes >= count {
					lock.Unlock()
					return
				}
				runtime.Gosched()
				lock.Unlock()
				runtime.Gosched()
			}
		}(me)
	}
	done.Wait()
	return time.Since(start), count
}

func sequencer(count uint64) (time.Duration, uint64) {
	var mutex sync.Mutex
	changed := sync.NewCond(&mutex)
	counter := uint64(0)
	return two(count, func(me, each uint64) {
		for n := uint64(0); n < each; n++ {
			mutex.Lock()
			for counter < 2*n+me {
				changed.Wait()
			}
			counter++
			changed.Broadcast()
			mutex.Unlock()
		}
	})
}

func selecting(count uint64) (time.Duration, uint64) {
	var there, back [2]chan uint64
	for n := range there {
		there[n], back[n] = make(chan uint64, 1), make(chan uint64, 1)
	}
	return two(count, func(me, each uint64) {
		if me == 0 {
			for n := uint64(0); n < each; n++ {
				message := either(there[0], there[1])
				back[n%2] <- message
			}
		} else {
			for n := uint64(0); n < each; n++ {
				there[n%2] <- n
				if either(back[0], back[1]) != n {
					fail("a message is lost")
				}
			}
		}
	})
}

func either(a, b chan uint64) uint64 {
	select {
	case message := <-a:
		return message
	case message := <-b:
		return message
	}
}
