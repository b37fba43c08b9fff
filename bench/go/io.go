// Sockets and pipes.

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Echoes on a port of the loopback address. A request that begins with 1 takes so many steps of mix.
func serveEcho(message, steps uint64) {
	listener := listen()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				fail(err.Error())
			}
			go echo(connection, message, steps)
		}
	}()
	answer(listener)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fail(err.Error())
	}
	return listener
}

// Prints the port of a server. Answers each line of the input with the processor time that has been
// used, of user and of system, in nanoseconds.
func answer(listener net.Listener) {
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			fail(err.Error())
		}
		fmt.Println(usage.Utime.Nano(), usage.Stime.Nano())
	}
}

// A connection has TCP_NODELAY unless it is told otherwise.
func echo(connection net.Conn, message, steps uint64) {
	buffer := make([]byte, message)
	for {
		count, err := connection.Read(buffer)
		if err != nil {
			connection.Close()
			return
		}
		if buffer[0] == 1 {
			atomic.StoreUint64(&sink, mix(1, steps))
		}
		if _, err := connection.Write(buffer[:count]); err != nil {
			connection.Close()
			return
		}
	}
}

// A byte goes to another goroutine and comes back.
func pipes(count uint64) (time.Duration, uint64) {
	there, to := pipe()
	back, from := pipe()
	done := make(chan bool)
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := there.Read(one); err != nil {
				break
			}
			if _, err := from.Write(one); err != nil {
				fail(err.Error())
			}
		}
		done <- true
	}()
	runtime.Gosched()
	one := make([]byte, 1)
	start := time.Now()
	for n := uint64(0); n < count; n++ {
		if _, err := to.Write(one); err != nil {
			fail(err.Error())
		}
		if _, err := back.Read(one); err != nil {
			fail(err.Error())
		}
	}
	elapsed := time.Since(start)
	to.Close()
	<-done
	there.Close()
	back.Close()
	from.Close()
	return elapsed, count
}

func pipe() (*os.File, *os.File) {
	reader, writer, err := os.Pipe()
	if err != nil {
		fail(err.Error())
	}
	return reader, writer
}
