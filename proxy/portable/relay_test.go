//go:build linux

package portable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// These tests follow the table of relay, row by row, with real sockets. They are for Linux: what
// they promise about the last bytes before a reset takes a kernel that tells of them.

// patient is a timeout that no test waits for.
var patient = engine.Config{HalfClosedTimeout: time.Hour}.WithDefaults()

// someone returns the account of a client whose service has no terms of its own.
func someone() *tcp.Connection {
	return &tcp.Connection{Claim: &engine.Claim{Terms: registry.NoTerms}}
}

// A joint is a relay and the two programs that it joins.
type joint struct {
	client, backend *net.TCPConn                           // as the programs hold them
	held            struct{ client, backend *net.TCPConn } // as the relay does
	cut             context.CancelFunc
	ended           chan struct{}  // closed when the relay has ended
	why             traffic.Reason // and what it returned
	counted         traffic.Tally
}

// join relays between a client and a backend, until the test ends at the latest.
func join(t testing.TB, cfg engine.Config) *joint {
	t.Helper()
	proxytest.NothingLeaks(t)
	ctx, cut := context.WithCancel(context.Background())
	j := &joint{cut: cut, ended: make(chan struct{})}
	j.client, j.held.client = tcpPair(t)
	j.held.backend, j.backend = tcpPair(t)
	go func() {
		defer close(j.ended)
		j.why = newRelay(j.held.client, j.held.backend, &cfg, &j.counted, someone()).run(ctx)
	}()
	t.Cleanup(func() {
		cut()
		proxytest.Receive(t, j.ended, "the relay to end")
	})
	return j
}

// endsBy waits until the relay has ended, for this reason.
func (j *joint) endsBy(t testing.TB, want traffic.Reason) {
	t.Helper()
	proxytest.Receive(t, j.ended, "the relay to end")
	if j.why != want {
		t.Errorf("the relay ended by %v; want %v", j.why, want)
	}
}

// An ending is what one of the two programs can be the reason of.
type ending struct{ finished, reset traffic.Reason }

func (j *joint) of(actor *net.TCPConn) ending {
	if actor == j.client {
		return ending{traffic.ClientFinished, traffic.ClientReset}
	}
	return ending{traffic.EndpointFinished, traffic.EndpointReset}
}

// tcpPair makes the two ends of a connection. Nothing on them blocks for ever.
func tcpPair(t testing.TB) (dialled, accepted *net.TCPConn) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled = proxytest.Dial(t, listener.Addr().(*net.TCPAddr).AddrPort())
	if accepted, err = listener.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	accepted.SetDeadline(time.Now().Add(2 * proxytest.Patience))
	return dialled, accepted
}

// ends gives the two programs by what they do in a test that is told from both sides.
func (j *joint) ends(clientActs bool) (actor, other *net.TCPConn) {
	if clientActs {
		return j.client, j.backend
	}
	return j.backend, j.client
}

// fromBothSides runs a test once with the client in the part of the actor, and once with the backend.
func fromBothSides(t *testing.T, cfg engine.Config, test func(t *testing.T, j *joint, actor, other *net.TCPConn)) {
	for _, clientActs := range []bool{true, false} {
		name := "backend"
		if clientActs {
			name = "client"
		}
		t.Run(name, func(t *testing.T) {
			j := join(t, cfg)
			actor, other := j.ends(clientActs)
			test(t, j, actor, other)
		})
	}
}

// delivered waits until the other end's kernel has all that was written to conn.
func delivered(t testing.TB, conn *net.TCPConn) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		n, err := proxytest.Unsent(conn)
		return n == 0 && err == nil
	}, "all that was written to be delivered")
}

// unread returns how many bytes lie ready to be read from conn (SIOCINQ, tcp(7)).
func unread(t testing.TB, conn *net.TCPConn) (n int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	enginetest.Must(t, err)
	enginetest.Must(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }))
	enginetest.Must(t, err)
	return n
}

// wantReset reads to the end, which must be a reset.
func wantReset(t testing.TB, who string, conn *net.TCPConn) {
	t.Helper()
	if err := proxytest.Discard(conn); !proxytest.IsReset(err) {
		t.Errorf("the %s saw %v; want a reset", who, err)
	}
}

// FIN, then FIN.
func TestRelayCarriesOnInOneDirectionWhenTheOtherHasEnded(t *testing.T) {
	first, second := proxytest.Stream{Seed: 1, Size: 3 << 20}, proxytest.Stream{Seed: 2, Size: 2 << 20}
	fromBothSides(t, patient, func(t *testing.T, j *joint, actor, other *net.TCPConn) {
		go func() {
			first.SendTo(actor)
			actor.CloseWrite()
		}()
		enginetest.Must(t, first.ReceiveAllFrom(other))
		go func() {
			second.SendTo(other)
			other.CloseWrite()
		}()
		enginetest.Must(t, second.ReceiveAllFrom(actor))
		j.endsBy(t, j.of(actor).finished) // since all is said
		want := [2]uint64{3 << 20, 2 << 20}
		if actor == j.backend {
			want = [2]uint64{2 << 20, 3 << 20}
		}
		if got := [2]uint64{j.counted.Sent.Load(), j.counted.Received.Load()}; got != want {
			t.Errorf("counted %v bytes there and back; want %v", got, want)
		}
	})
}

// RST. The other program reads nothing before the reset has arrived at the relay, so most of what
// it must still get lies in the relay's own socket then.
func TestRelayDeliversWhatCameBeforeAResetAndThenResets(t *testing.T) {
	words := proxytest.Stream{Seed: 3, Size: 1 << 20}
	for _, c := range []struct {
		name  string
		first func(t *testing.T, actor, other *net.TCPConn)
	}{
		{"while both talk", func(*testing.T, *net.TCPConn, *net.TCPConn) {}},
		{"after the other has finished", func(t *testing.T, actor, other *net.TCPConn) {
			enginetest.Must(t, other.CloseWrite())
			enginetest.Must(t, proxytest.Discard(actor))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fromBothSides(t, patient, func(t *testing.T, j *joint, actor, other *net.TCPConn) {
				enginetest.Must(t, other.SetReadBuffer(64<<10))
				c.first(t, actor, other)
				enginetest.Must(t, words.SendTo(actor))
				delivered(t, actor)
				proxytest.Reset(actor)
				enginetest.Must(t, words.ReceiveFrom(other))
				wantReset(t, "other side", other)
				j.endsBy(t, j.of(actor).reset)
			})
		})
	}
}

// Writing fails by ECONNRESET: the backend answers and closes with unread input, which its kernel
// tells by a reset. The pump that writes to it and the one that reads from it learn of that at the
// same moment, and the kernel tells only one of them the truth. The client here is in the same
// position: it was reset if one of its two goroutines is told so.
func TestRelayNeverTakesAnEarlyCloseForACleanEnd(t *testing.T) {
	answer := []byte("413 that is too much")
	for i := range 300 {
		if !t.Run("", func(t *testing.T) {
			j := join(t, patient)
			sent := make(chan error, 1)
			go func() { // more than the other side will read
				for chunk := make([]byte, 64<<10); ; {
					if _, err := j.client.Write(chunk); err != nil {
						sent <- err
						return
					}
				}
			}()
			_, err := io.ReadFull(j.backend, make([]byte, 100+i*1000))
			enginetest.Must(t, err)
			_, err = j.backend.Write(answer)
			enginetest.Must(t, err)
			proxytest.Eventually(t, func() bool { return unread(t, j.backend) > 0 }, "input that the backend has not read")
			enginetest.Must(t, j.backend.Close())
			got, err := io.ReadAll(j.client)
			werr := proxytest.Receive(t, sent, "the client's writes to end")
			if !bytes.Equal(got, answer) || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(werr, syscall.ECONNRESET) {
				t.Errorf("the client got %q, then %v, and its writes %v; want the answer, then a reset", got, err, werr)
			}
			j.endsBy(t, traffic.EndpointReset)
		}) {
			return
		}
	}
}

// Writing fails by EPIPE, on the client's behalf: the backend has answered and finished before it
// left. The client first sends all it has, much more than any buffer holds, and only then looks for
// an answer.
func TestRelayLetsAClientFinishAndGivesItTheWholeAnswerOfABackendThatHasLeft(t *testing.T) {
	surplus := proxytest.Stream{Seed: 5, Size: 32 << 20}
	for _, answer := range []proxytest.Stream{
		{Seed: 4, Size: 10},
		muchFor(4), // the FIN is still behind data that the relay cannot read when it learns that the backend is gone
	} {
		t.Run(fmt.Sprint(answer.Size), func(t *testing.T) {
			j := join(t, patient)
			answerAndLeave(t, j, answer)
			enginetest.Must(t, surplus.SendTo(j.client))
			enginetest.Must(t, answer.ReceiveAllFrom(j.client))
			select {
			case <-j.ended:
				t.Error("the relay has ended although the client has not finished")
			default:
			}
			enginetest.Must(t, j.client.Close())
			j.endsBy(t, traffic.EndpointReset)
		})
	}
}

// muchFor is an answer that does not fit into the buffers between the relay and a client that does
// not read, once answerAndLeave has made them small.
func muchFor(seed uint64) proxytest.Stream { return proxytest.Stream{Seed: seed, Size: 320 << 10} }

// answerAndLeave has the backend answer, finish, and be gone.
func answerAndLeave(t *testing.T, j *joint, answer proxytest.Stream) {
	t.Helper()
	enginetest.Must(t, j.client.SetReadBuffer(64<<10))
	enginetest.Must(t, j.held.client.SetWriteBuffer(32<<10))
	enginetest.Must(t, j.held.backend.SetReadBuffer(200<<10))
	enginetest.Must(t, answer.SendTo(j.backend))
	enginetest.Must(t, j.backend.CloseWrite())
	delivered(t, j.backend)
	enginetest.Must(t, j.backend.Close())
}

// Writing fails by EPIPE, on the backend's behalf: the client has asked, finished and left. The
// backend has read nothing yet, so the end of the request still lies in the relay's socket.
func TestRelayStopsABackendWhoseClientHasLeftOnceItHasTheWholeRequest(t *testing.T) {
	request := proxytest.Stream{Seed: 6, Size: 1 << 20}
	j := join(t, patient)
	enginetest.Must(t, j.backend.SetReadBuffer(64<<10))
	enginetest.Must(t, request.SendTo(j.client))
	enginetest.Must(t, j.client.CloseWrite())
	delivered(t, j.client)
	enginetest.Must(t, j.client.Close())
	stopped := make(chan error, 1)
	go func() {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := j.backend.Write(chunk); err != nil {
				stopped <- err
				return
			}
		}
	}()
	enginetest.Must(t, request.ReceiveAllFrom(j.backend))
	if err := proxytest.Receive(t, stopped, "the backend to be stopped"); !proxytest.IsReset(err) {
		t.Errorf("the backend's writes ended by %v; want a reset", err)
	}
	proxytest.Receive(t, j.ended, "the relay to end")
}

// Both programs are reset, in every state that a relay can be in.
func TestRelayIsCutWhateverItIsDoing(t *testing.T) {
	for _, c := range []struct {
		name  string
		state func(t *testing.T, j *joint)
		fin   bool // the client has been sent a clean end by then
	}{
		{"idle", func(*testing.T, *joint) {}, false},
		{"writing to those who do not read", func(t *testing.T, j *joint) {
			fill(t, j.client)
			fill(t, j.backend)
		}, false},
		{"half-closed", func(t *testing.T, j *joint) {
			enginetest.Must(t, j.client.CloseWrite())
			enginetest.Must(t, proxytest.Discard(j.backend))
		}, false},
		{"delivering what came before a reset", func(t *testing.T, j *joint) {
			enginetest.Must(t, j.client.SetReadBuffer(64<<10))
			enginetest.Must(t, proxytest.Stream{Size: 1 << 20}.SendTo(j.backend))
			delivered(t, j.backend)
			proxytest.Reset(j.backend)
		}, false},
		{"listening in vain", func(t *testing.T, j *joint) {
			answerAndLeave(t, j, proxytest.Stream{})
			enginetest.Must(t, proxytest.Stream{Size: 32 << 20}.SendTo(j.client))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := join(t, patient)
			c.state(t, j)
			j.cut()
			proxytest.Receive(t, j.ended, "the relay to end")
			if !c.fin {
				wantReset(t, "client", j.client)
			}
		})
	}
}

// fill writes to conn until no more is taken.
func fill(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	chunk := make([]byte, 64<<10)
	for {
		conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Write(chunk); err != nil {
			return
		}
	}
}

// What a slow reader costs is bounded: when both sides of a relay write and neither reads, it holds one
// buffer for each, and all else is the kernel's.
func TestRelayHoldsTwoBuffersForSidesThatReadNothing(t *testing.T) {
	const relays = 60
	proxytest.NothingLeaks(t)
	var ends []*net.TCPConn // of the programs
	var stuck []*relay
	for range relays {
		client, heldClient := tcpPair(t)
		heldBackend, backend := tcpPair(t)
		ends = append(ends, client, backend)
		for _, conn := range []*net.TCPConn{client, heldClient, heldBackend, backend} {
			enginetest.Must(t, conn.SetReadBuffer(16<<10)) // so that they are full soon
			enginetest.Must(t, conn.SetWriteBuffer(16<<10))
		}
		stuck = append(stuck, newRelay(heldClient, heldBackend, &patient, new(traffic.Tally), someone()))
	}
	ctx, cut := context.WithCancel(t.Context())
	var running, filling sync.WaitGroup
	defer running.Wait()
	defer cut()

	before := memory()
	for _, r := range stuck {
		running.Go(func() { r.run(ctx) })
	}
	for _, conn := range ends {
		filling.Go(func() { fill(t, conn) })
	}
	filling.Wait()
	each := (memory() - before) / relays
	t.Logf("each relay holds %d bytes", each)
	if least, most := int64(2*bufferSize), int64(2*bufferSize+32<<10); each < least || each > most {
		t.Errorf("each relay that is stuck holds %d bytes; want two buffers, and not 32 KiB more: %d to %d", each, least, most)
	}
}

// memory returns how much this process uses of heap and stacks.
func memory() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they hold for one more
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Silence does not end a connection that neither side has finished.
func TestRelayLeavesASilentConnectionAlone(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout, cfg.TCPKeepAlive = 20*time.Millisecond, 20*time.Millisecond // both looked at many times
	j := join(t, cfg)
	time.Sleep(10 * cfg.HalfClosedTimeout)
	exchange(t, j.client, j.backend)
	exchange(t, j.backend, j.client)
}

func exchange(t *testing.T, from, to *net.TCPConn) {
	t.Helper()
	enginetest.Must(t, exchanged(from, to))
}

func exchanged(from, to *net.TCPConn) error {
	if _, err := from.Write([]byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(to, got); err != nil || string(got) != "hello" {
		return fmt.Errorf("got %q, %v", got, err)
	}
	return nil
}

// Silence after a FIN: the side that finished never heard the other's end, and must not think so.
func TestRelayEndsAHalfClosedConnectionAfterSilence(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout = 200 * time.Millisecond
	fromBothSides(t, cfg, func(t *testing.T, j *joint, actor, other *net.TCPConn) {
		start := time.Now()
		enginetest.Must(t, actor.CloseWrite())
		enginetest.Must(t, proxytest.Discard(other)) // a clean end
		wantReset(t, "side that had finished", actor)
		if took := time.Since(start); took < cfg.HalfClosedTimeout {
			t.Errorf("ended after %v; want not before %v", took, cfg.HalfClosedTimeout)
		}
		j.endsBy(t, traffic.HalfClosedTimeout)
	})
}

// Any byte pushes back the end.
func TestRelayStaysWhileAHalfClosedConnectionIsNotSilent(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout = time.Second
	for _, clientActs := range []bool{true, false} {
		proxytest.Punctually(t, cfg.HalfClosedTimeout/2, func(beat func()) error {
			actor, other := join(t, cfg).ends(clientActs)
			if err := actor.CloseWrite(); err != nil {
				return err
			}
			for start := time.Now(); time.Since(start) < 2*cfg.HalfClosedTimeout; time.Sleep(cfg.HalfClosedTimeout / 10) {
				beat()
				if err := exchanged(other, actor); err != nil {
					return err
				}
			}
			return errors.Join(other.CloseWrite(), proxytest.Discard(actor))
		})
	}
}

// A slow reader empties the kernel's buffers for a long time before the relay can write again. That
// is no silence either.
func TestRelayStaysWhileASlowReaderEmptiesTheKernelsBuffers(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout = time.Second
	answer := proxytest.Stream{Seed: 7, Size: 6 << 20}
	proxytest.Punctually(t, cfg.HalfClosedTimeout/2, func(beat func()) error {
		j := join(t, cfg)
		enginetest.Must(t, j.client.SetReadBuffer(64<<10)) // so that the window opens often
		if err := errors.Join(j.client.CloseWrite(), proxytest.Discard(j.backend)); err != nil {
			return err
		}
		go func() {
			answer.SendTo(j.backend)
			j.backend.CloseWrite()
		}()
		got := 0
		buf := make([]byte, 16<<10)
		for start := time.Now(); ; {
			if time.Since(start) < 3*cfg.HalfClosedTimeout {
				time.Sleep(20 * time.Millisecond) // 800 kB a second, where the kernel holds megabytes
			}
			beat()
			n, err := j.client.Read(buf)
			if got += n; err == io.EOF && got == answer.Size {
				return nil
			} else if err != nil {
				return fmt.Errorf("the client got %d bytes of %d, then %w", got, answer.Size, err)
			}
		}
	})
}

// Silence behind a reset: a side that reads nothing cannot put off the reset for ever.
func TestRelayResetsAfterSilenceWhenTheLastWordsAreNotTaken(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout = 200 * time.Millisecond
	fromBothSides(t, cfg, func(t *testing.T, j *joint, actor, other *net.TCPConn) {
		enginetest.Must(t, other.SetReadBuffer(64<<10))
		enginetest.Must(t, proxytest.Stream{Size: 1 << 20}.SendTo(actor))
		delivered(t, actor)
		start := time.Now()
		proxytest.Reset(actor)
		proxytest.Receive(t, j.ended, "the relay to end")
		if took := time.Since(start); took < cfg.HalfClosedTimeout {
			t.Errorf("ended after %v; want not before %v", took, cfg.HalfClosedTimeout)
		}
		wantReset(t, "other side", other)
	})
}

// Silence behind EPIPE: what is thrown away is not delivered, so a client that goes on and on
// sending to a side that has gone is not listened to for ever. It may have the whole answer, or never look at it.
func TestRelayDoesNotListenInVainForEver(t *testing.T) {
	cfg := patient
	cfg.HalfClosedTimeout = 200 * time.Millisecond
	for _, answer := range []proxytest.Stream{{}, muchFor(8)} {
		t.Run(fmt.Sprint(answer.Size), func(t *testing.T) {
			j := join(t, cfg)
			answerAndLeave(t, j, answer)
			start, chunk := time.Now(), make([]byte, 64<<10)
			for {
				if _, err := j.client.Write(chunk); err != nil {
					if !proxytest.IsReset(err) {
						t.Errorf("the client's writes ended by %v; want a reset", err)
					}
					break
				}
			}
			if took := time.Since(start); took < cfg.HalfClosedTimeout {
				t.Errorf("ended after %v; want not before %v", took, cfg.HalfClosedTimeout)
			}
			j.endsBy(t, traffic.HalfClosedTimeout)
		})
	}
}

// When a side breaks off to whom the other side is only thrown away, the relay ends at once, and one of its pumps may be writing.
func TestRelayTakesItsOwnClosingForNobodysEnd(t *testing.T) {
	for _, c := range []struct {
		broken tcp.Side
		want   traffic.Reason // by the side that took no more
	}{{tcp.ClientSide, traffic.EndpointReset}, {tcp.BackendSide, traffic.ClientReset}} {
		client, _ := tcpPair(t)
		backend, _ := tcpPair(t)
		r := newRelay(client, backend, &patient, new(traffic.Tally), someone())
		src, dst := &r.client, &r.backend
		if c.broken == tcp.BackendSide {
			src, dst = dst, src
		}
		r.end.Unwritable(dst.which, syscall.EPIPE)
		r.ended(dst, src, syscall.ECONNRESET)
		if err := r.write(src, []byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("writing to a side that is closed: %v", err)
		}
		_, err := dst.conn.Read(make([]byte, 1))
		r.ended(src, dst, err)
		if got := r.end.Reason(); got != c.want {
			t.Errorf("the relay ended by %v; want %v", got, c.want)
		}
	}
}

// FuzzRelay has both programs write, in pieces of any size, and finish, in any order.
func FuzzRelay(f *testing.F) {
	f.Add([]byte{2, 5, 0, 1})
	f.Add([]byte{0, 255, 253, 251, 1})
	f.Add([]byte{1, 254, 254, 6, 10, 0})
	f.Add(bytes.Repeat([]byte{250, 251, 2, 3}, 50))
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 200)]
		j := join(t, patient)
		programs := [2]*net.TCPConn{j.client, j.backend}
		var said, heard [2][]byte
		var errs [2]error
		var reading sync.WaitGroup
		for i, conn := range programs {
			reading.Go(func() { heard[1-i], errs[i] = io.ReadAll(conn) })
		}
		var finished [2]bool
		for at, op := range script { // the lowest bit says who, the others how much; nothing means to finish
			who, size := op&1, int(op>>1)*int(op>>1)
			switch {
			case finished[who]:
			case size == 0:
				enginetest.Must(t, programs[who].CloseWrite())
				finished[who] = true
			default:
				piece := bytes.Repeat([]byte{byte(at)}, size)
				said[who] = append(said[who], piece...)
				_, err := programs[who].Write(piece)
				enginetest.Must(t, err)
			}
		}
		for who, conn := range programs {
			if !finished[who] {
				enginetest.Must(t, conn.CloseWrite())
			}
		}
		reading.Wait()
		enginetest.Must(t, errors.Join(errs[:]...))
		for who := range programs {
			if !bytes.Equal(heard[who], said[who]) {
				t.Errorf("program %d said %d bytes, and the other heard %d", who, len(said[who]), len(heard[who]))
			}
		}
		proxytest.Receive(t, j.ended, "the relay to end")
	})
}
