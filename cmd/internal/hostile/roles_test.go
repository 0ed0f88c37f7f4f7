//go:build linux

package hostile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Where each role is: the network is ours alone.
const (
	echoes   = "127.0.0.1:7101" // endpoint: sends back what comes
	holds    = "127.0.0.1:7102" // endpoint: reads, and never says anything
	floods   = "127.0.0.1:7103" // endpoint: once asked, sends without end
	mirrors  = "127.0.0.1:7104" // endpoint over UDP: answers with the address that it was asked from
	sinkAddr = "127.0.0.1:7201" // the sink, over TCP and UDP

	sinkCounts = "127.0.0.1:7202" // tells how many datagrams the sink has had
)

// play does the part of this process until it is killed.
func play(role string, args []string) error {
	switch role {
	case "endpoints":
		return playEndpoints()
	case "sink":
		return playSink(args)
	case "silent":
		return playSilent(args)
	case "forger":
		return playForger(args)
	case "caller":
		return playCaller(args)
	case "writer":
		return playWriter(args)
	case "mute":
		return playMute(args)
	case "uploader":
		return playUploader(args)
	case "nameservers":
		return playNameservers()
	case "yardstick":
		return playYardstick()
	}
	return errors.New("no such role: " + role)
}

func playEndpoints() error {
	for addr, handle := range map[string]func(net.Conn){
		echoes: func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) },
		holds:  func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{io.Discard}, c) },
		floods: func(c net.Conn) {
			if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				return
			}
			for {
				if _, err := c.Write(nothing[:]); err != nil {
					return
				}
			}
		},
	} {
		if err := serveTCP(addr, handle); err != nil {
			return err
		}
	}
	mirror, err := net.ListenPacket("udp4", mirrors)
	if err != nil {
		return err
	}
	go func() {
		var buf [2048]byte
		for {
			_, from, err := mirror.ReadFrom(buf[:])
			if err != nil {
				return
			}
			_, _ = mirror.WriteTo([]byte(from.String()), from) // a lost answer is asked for again
		}
	}()
	fmt.Println("ready")
	select {}
}

var nothing [16 << 10]byte

// Each thread of a yardstick works for worked ten times a second. In 168 turns of more than 20 ms, no loop has worked for longer: docs/security.md.
const worked = 5 * time.Millisecond

// playYardstick prints how long the work took whenever it took longer than ever, in nanoseconds: any thread's, and the first one's. There are as many
// threads as there are loops, whose longest turn is that of all. Other threads of the machine delay them as they delay a loop, and less than a loop that
// is busy: the scheduler prefers who has slept.
func playYardstick() error {
	var mu sync.Mutex // guards the two times
	var longest, first time.Duration
	fmt.Println("ready")
	for i := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			ran := func() time.Duration {
				var t unix.Timespec
				_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail
				return time.Duration(t.Nano())
			}
			for ; ; time.Sleep(100 * time.Millisecond) {
				begun, until := time.Now(), ran()+worked
				for ran() < until {
				}
				took := time.Since(begun)
				mu.Lock()
				longest = max(longest, took)
				if i == 0 {
					first = max(first, took)
				}
				if took == longest || i == 0 && took == first {
					fmt.Println(longest.Nanoseconds(), first.Nanoseconds())
				}
				mu.Unlock()
			}
		}()
	}
	select {}
}

// playSink swallows what it is sent. It has room for so many connections, and resets the rest.
func playSink(args []string) error {
	room, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return err
	}
	var held, datagrams atomic.Int64
	err = serveTCP(sinkAddr, func(c net.Conn) {
		defer held.Add(-1)
		if held.Add(1) > room {
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		buf := make([]byte, 512)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if err := serveTCP(sinkCounts, func(c net.Conn) { fmt.Fprint(c, datagrams.Load()) }); err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp4", sinkAddr)
	if err != nil {
		return err
	}
	_ = packets.(*net.UDPConn).SetReadBuffer(4 << 20) // as the proxy's
	fmt.Println("ready")
	var buf [2048]byte
	for {
		if _, _, err := packets.ReadFrom(buf[:]); err != nil {
			return err
		}
		datagrams.Add(1)
	}
}

func serveTCP(addr string, handle func(net.Conn)) error {
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				time.Sleep(time.Millisecond) // out of descriptors
				continue
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return nil
}

// playSilent opens connections at a rate, from an address of its own, says one line on each if it is given one,
// reads nothing, and holds them until they are reset. It tells when all have been tried, and stays.
func playSilent(args []string) error {
	to, from, line := args[0], args[1], args[2]
	n, rate, err := two(args[3:])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var attempts, greeted sync.WaitGroup
	slots := make(chan struct{}, 256)
	paced(n, rate, func(int) {
		slots <- struct{}{}
		attempts.Go(func() {
			defer func() { <-slots }()
			conn, err := dialer.Dial("tcp4", to)
			if err == nil && line != "" {
				_, err = io.WriteString(conn, line+"\n")
			}
			if err != nil {
				return
			}
			raw, err := conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				return
			}
			greeted.Go(func() { // wait for a reset without taking a byte out of the queue
				_ = raw.Read(func(fd uintptr) bool {
					events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
					if n, err := unix.Poll(events, 0); n == 0 && err == nil {
						return false
					}
					return true
				})
				conn.Close()
			})
		})
	})
	attempts.Wait()
	fmt.Printf("done: %d tried\n", n)
	greeted.Wait()
	select {}
}

// playForger sends datagrams from addresses where no client waits for an answer, each from another one.
func playForger(args []string) error {
	to, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	n, rate, err := two(args[1:])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	sent := 0
	paced(n, rate, func(i int) {
		from := [4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		if unix.Bind(fd, &unix.SockaddrInet4{Addr: from}) == nil &&
			unix.Sendto(fd, []byte("forged"), 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}) == nil {
			sent++
		}
	})
	fmt.Printf("done: %d sent\n", sent)
	select {}
}

// playCaller connects to one place after the other, waits a moment for being sent away, and leaves.
func playCaller(args []string) error {
	to, err := targets(args[0])
	if err != nil {
		return err
	}
	n, rate, err := two(args[1:])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var callers sync.WaitGroup
	paced(n, rate, func(i int) {
		callers.Go(func() {
			network := "tcp"
			addr, isUDP := strings.CutPrefix(to[i%len(to)], "udp:")
			if isUDP {
				network = "udp"
			}
			conn, err := net.DialTimeout(network, addr, time.Second)
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n")
			_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, _ = io.Copy(io.Discard, conn)
		})
	})
	callers.Wait()
	fmt.Println("done")
	select {}
}

// targets spells out a list of addresses, of which some have a range of ports.
func targets(list string) (all []string, err error) {
	for addr := range strings.SplitSeq(list, ",") {
		head, last, isRange := strings.Cut(addr, "-")
		if !isRange {
			all = append(all, addr)
			continue
		}
		host := head[:strings.LastIndexByte(head, ':')+1]
		from, to, err := two([]string{head[len(host):], last})
		if err != nil {
			return nil, err
		}
		for port := from; port <= to; port++ {
			all = append(all, host+strconv.Itoa(port))
		}
	}
	return all, nil
}

// playWriter writes the values in files to some keys below a prefix, in turn, again and again.
func playWriter(args []string) error {
	url, prefix, files := args[0], args[1], strings.Split(args[2], ",")
	n, rate, err := two(args[3:])
	if err != nil {
		return err
	}
	keys, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	var values []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		values = append(values, string(text))
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println("ready")
	failed := 0
	paced(n, rate, func(i int) {
		key := prefix + "large-" + strconv.Itoa(i%keys)
		if _, err := c.Put(context.Background(), key, values[(i/keys+i)%len(values)]); err != nil { // each one's value changes from write to write
			if failed++; failed == 1 {
				fmt.Println("write:", err)
			}
		}
	})
	fmt.Printf("done: %d failed\n", failed)
	select {}
}

// playMute is an endpoint that accepts and reads nothing.
func playMute(args []string) error {
	if err := serveTCP(args[0], func(net.Conn) { select {} }); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// How an uploader ends its connections.
const (
	byReset = "reset"
	byFIN   = "FIN"
)

// playUploader opens connections at a rate, sends so many bytes on each for a second at most, and then ends all of them at once.
// A second and a half later it is done, and tells how many bytes found room.
func playUploader(args []string) error {
	n, rate, err := two(args[1:])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	end := args[4]
	fmt.Println("ready")
	upload := make([]byte, size)
	var uploads sync.WaitGroup
	var sent atomic.Int64
	conns := make([]net.Conn, n)
	paced(n, rate, func(i int) {
		uploads.Go(func() {
			conn, err := net.DialTimeout("tcp4", args[0], time.Second)
			if err != nil {
				return
			}
			conns[i] = conn
			if end == byReset {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			due := time.Now().Add(time.Second)
			_ = conn.SetDeadline(due)
			written, _ := conn.Write(upload) // of an endpoint that does not read, some find no room
			sent.Add(int64(written))
			time.Sleep(time.Until(due)) // or others would end sooner than those that wait for room
		})
	})
	uploads.Wait()
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
	time.Sleep(1500 * time.Millisecond)
	fmt.Println("done:", sent.Load())
	select {}
}

// The nameservers of a site: the first one answers only for names that begin with answered.
const (
	answered         = "answered-"
	silentNameserver = "127.0.0.52"
	nameserver       = "127.0.0.53" // answers each question for an IPv4 address with 127.0.0.1
)

// playNameservers is a nameserver that answers for few names, and one that answers for all. Each name that is answered is 127.0.0.1.
func playNameservers() error {
	silent, err := net.ListenPacket("udp4", silentNameserver+":53")
	if err != nil {
		return err
	}
	answers, err := net.ListenPacket("udp4", nameserver+":53")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() { _ = serveNames(silent, answered) }()
	return serveNames(answers, "")
}

// serveNames answers questions for names that begin with a prefix.
func serveNames(conn net.PacketConn, prefix string) error {
	var buf [512]byte
	for {
		n, from, err := conn.ReadFrom(buf[:])
		if err != nil {
			return err
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		if !strings.HasPrefix(q.Name.String(), prefix) {
			continue
		}
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
		}
		if text, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(text, from)
		}
	}
}

func two(args []string) (n, rate int, err error) {
	n, err = strconv.Atoi(args[0])
	if err == nil {
		rate, err = strconv.Atoi(args[1])
	}
	return n, rate, err
}

// paced does something n times, so many times a second, late rather than never.
func paced(n, rate int, do func(i int)) {
	began := time.Now()
	for i := range n {
		if ahead := time.Duration(i)*time.Second/time.Duration(rate) - time.Since(began); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		do(i)
	}
}
