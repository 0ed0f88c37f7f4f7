package control

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/internal/lograte"
	"kubeproxy/internal/ownersocket"
	"kubeproxy/registry"
)

// What requests and answers may take.
const (
	room          = 64 // connections at a time
	headerTimeout = 5 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = time.Minute
	lastAnswers   = time.Second // at the end
	maxHeader     = 8 << 10
	maxBody       = 16 << 10
)

// A Server answers at one socket. Make it with [Listen].
type Server struct {
	socket   *ownersocket.Socket
	listener net.Listener // what it accepts from
}

// CheckPath returns an error if this system or this path cannot be used, on any machine of its kind.
func CheckPath(path string) error {
	if !ownersocket.Supported {
		return ownersocket.ErrNotHere
	}
	return ownersocket.CheckPath(path)
}

// Listen takes the place of the process that listened at path before.
func Listen(path string) (*Server, error) {
	socket, err := ownersocket.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return &Server{socket: socket, listener: &trusting{Listener: socket}}, nil
}

// Close stops listening, and removes the file unless it is another process's by now.
func (s *Server) Close() { s.socket.Close() }

// Run answers until ctx ends. Then it lets the answers that are being given be finished for a moment, and when it returns nothing of it is
// running.
func (s *Server) Run(ctx context.Context, node Node) {
	clients := crowd.New(s.listener, room)
	server := &http.Server{
		Handler:           admitted(clients.Handler(newHandler(node))),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext: func(c context.Context, conn net.Conn) context.Context {
			return withPeer(clients.Remember(c, conn), conn)
		},
		BaseContext:                  func(net.Listener) context.Context { return ctx }, // those who wait for something stop
		ErrorLog:                     log.New(quiet{}, "", 0),
		DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, s.Close)
	err := server.Serve(clients)
	if stop() { // ctx has not ended
		s.Close()
		glog.Errorf("the control socket has failed: %v", err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	server.SetKeepAlivesEnabled(false)
	clients.Leave(last)
	if server.Shutdown(last) != nil {
		server.Close()
	}
}

// A trusting listener accepts only peers of our own user, and root.
type trusting struct {
	net.Listener
	refused lograte.Limiter[struct{}] // of lines about others
}

// Accept implements [net.Listener].
func (l *trusting) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := ownersocket.PeerOf(conn.(*net.UnixConn))
		if err == nil {
			err = peer.Distrust()
		}
		if err == nil {
			return &known{conn, peer}, nil
		}
		conn.Close()
		if note, ok := l.refused.Allow(struct{}{}); ok {
			glog.Warningf("a process at the control socket is not answered: %v%s", err, note)
		}
	}
}

// newHandler returns what is answered, by method and path.
func newHandler(node Node) http.Handler {
	mux := http.NewServeMux()
	get := func(path string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { respond(w, r, answer) })
	}
	post := func(path string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { respond(w, r, answer) })
	}
	get("/v1/status", node.status)
	get("/v1/log", node.log)
	get("/v1/names", node.names)
	mux.HandleFunc("GET /v1/sessions", node.answerSessions)
	waits := make(chan struct{}, maxWaits)
	mux.HandleFunc("GET /v1/wait", func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, func(r *http.Request) (any, error) {
			select {
			case waits <- struct{}{}:
				defer func() { <-waits }()
				return node.wait(w, r)
			default:
				return nil, unavailable(errors.New("too many wait already"))
			}
		})
	})
	post("/v1/kill", node.kill)
	get("/v1/overrides", node.overrides)
	post("/v1/override", node.override)
	post("/v1/enable", node.enable)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, func(*http.Request) (any, error) {
			return nil, notFound("there is no %s %s: another release may have it", registry.QuoteShort(r.Method), registry.Quote(r.URL.Path))
		})
	})
	return mux
}

// quiet takes what net/http has to say. Of clients, that is nothing that an operator could act on; of us, that a handler has panicked.
type quiet struct{}

func (quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) {
		glog.Errorf("control: %s", line)
	} else {
		glog.V(4).Infof("control: %.200q", line)
	}
	return len(line), nil
}
