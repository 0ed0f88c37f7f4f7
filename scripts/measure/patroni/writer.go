//go:build linux

package patroni

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// A writer commits one row after the other over one connection, and connects again when that breaks.
type writer struct {
	at   []string // hosts, in the order in which they are tried
	stop func()

	mu      sync.Mutex // guards the fields below
	commits []commit
	errors  int
	longest time.Duration
}

// A commit is one that was acknowledged, and by which server.
type commit struct {
	at     time.Time
	server string
}

const (
	pause    = 20 * time.Millisecond // between two commits, or attempts
	patience = 30 * time.Second      // for one answer
)

func startWriter(at ...string) *writer {
	w := &writer{at: at}
	over, done := make(chan struct{}), make(chan struct{})
	w.stop = sync.OnceFunc(func() {
		close(over)
		<-done
	})
	go func() {
		defer close(done)
		var s *session
		for {
			select {
			case <-over:
				s.close()
				return
			case <-time.After(pause):
			}
			began := time.Now()
			server, err := "", error(nil)
			if s == nil {
				s, err = connectToPrimary(w.at)
			}
			if err == nil {
				server, err = s.ask("INSERT INTO writes DEFAULT VALUES RETURNING host(inet_server_addr())", patience)
			}
			if err != nil {
				s.close()
				s = nil
			}
			w.note(began, server, err)
		}
	}()
	return w
}

func (w *writer) end() { w.stop() }

func (w *writer) note(began time.Time, server string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest = max(w.longest, time.Since(began))
	if err != nil {
		w.errors++
		return
	}
	w.commits = append(w.commits, commit{time.Now(), server})
}

// first is when a server acknowledged its first commit.
func (w *writer) first(server string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.commits {
		if c.server == server {
			return c.at
		}
	}
	return time.Time{}
}

// after counts the commits that a server acknowledged after a moment.
func (w *writer) after(moment time.Time, server string) (n int) {
	for _, c := range w.commits {
		if c.server == server && c.at.After(moment) {
			n++
		}
	}
	return n
}

// gap is the longest time without a commit.
func (w *writer) gap() (longest time.Duration) {
	for i := 1; i < len(w.commits); i++ {
		longest = max(longest, w.commits[i].at.Sub(w.commits[i-1].at))
	}
	return longest
}

// A session is a connection to PostgreSQL. Its protocol (version 3) is chapter 55 of the manual of PostgreSQL 15; this is as much of it as one
// statement needs that returns one value.
type session struct {
	conn net.Conn
	from *bufio.Reader
}

// hostTime is for each of several hosts to be connected to, and to answer: libpq's connect_timeout, which is at least 2 s.
const hostTime = 2 * time.Second

// connectToPrimary connects to the first host that takes writes, as libpq does for several hosts with target_session_attrs=read-write. A single host
// is taken as it is.
func connectToPrimary(hosts []string) (s *session, err error) {
	if len(hosts) == 1 {
		return connect(hosts[0], patience)
	}
	for _, at := range hosts {
		var readOnly string
		if s, err = connect(at, hostTime); err != nil {
			continue
		}
		if readOnly, err = s.ask("SHOW transaction_read_only", patience); err == nil && readOnly == "off" {
			return s, nil
		}
		s.close()
		err = errors.Join(err, errors.New("the last of the hosts is read-only"))
	}
	return nil, err
}

func connect(at string, within time.Duration) (*session, error) {
	conn, err := net.DialTimeout("tcp", at, within)
	if err != nil {
		return nil, err
	}
	s := &session{conn, bufio.NewReader(conn)}
	hello := binary.BigEndian.AppendUint32(nil, 3<<16)
	hello = append(hello, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello)+4)), hello...)); err != nil {
		s.close()
		return nil, err
	}
	if _, err := s.answer(within); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// ask has a statement executed within a time, and returns the value of its first row.
func (s *session) ask(statement string, within time.Duration) (value string, err error) {
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(statement)+5))
	if _, err := s.conn.Write(append(append(message, statement...), 0)); err != nil {
		return "", err
	}
	return s.answer(within)
}

// answer reads messages until the server is ready for the next statement.
func (s *session) answer(within time.Duration) (value string, err error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(within))
	for {
		var head [5]byte
		if _, err := io.ReadFull(s.from, head[:]); err != nil {
			return "", err
		}
		length := int64(binary.BigEndian.Uint32(head[1:])) - 4
		if length < 0 || length > 1<<20 {
			return "", fmt.Errorf("a message of %d bytes", length)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(s.from, body); err != nil {
			return "", err
		}
		switch head[0] {
		case 'E': // its fields are letters with texts; M is for people
			for field := range strings.SplitSeq(string(body), "\x00") {
				if text, ok := strings.CutPrefix(field, "M"); ok {
					return "", errors.New(text)
				}
			}
			return "", errors.New("an error without a word")
		case 'R':
			if binary.BigEndian.Uint32(body) != 0 {
				return "", errors.New("the server wants a password")
			}
		case 'D':
			if len(body) > 6 {
				value = string(body[6:])
			}
		case 'Z':
			return value, nil
		}
	}
}

func (s *session) close() {
	if s != nil {
		s.conn.Close()
	}
}
