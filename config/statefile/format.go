package statefile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"kubeproxy/registry"
)

// A header is the first line.
type header struct {
	Format    string    `json:"format"`
	Current   time.Time `json:"current"` // when the state was last known to be what the sources hold
	Services  int       `json:"services"`
	Endpoints int       `json:"endpoints"`

	Node registry.Node `json:"node,omitzero"` // that has written it
}

// format is of this version. A file of another one cannot be read. It changes when an earlier release would misunderstand a file; a field that an earlier
// release can do without does not change it.
const format = "kube-proxy state 2"

// A trailer is the last line.
type trailer struct {
	SHA256 string `json:"sha256"` // of the lines before
}

// A line is one object: exactly one of the two is set.
type line struct {
	Service   *service   `json:"service,omitempty"`
	Endpoints *endpoints `json:"endpoints,omitempty"`
}

// A service is a [registry.Service].
type service struct {
	Namespace text           `json:"namespace"`
	Name      text           `json:"name"`
	Rank      int            `json:"rank,omitempty"`
	Created   int64          `json:"created"`
	Ports     []port         `json:"ports,omitempty"`
	Terms     registry.Terms `json:"terms,omitzero"` // by the names of its fields

	// The datagram of a check and its answer, if one of them is no UTF-8, which JSON would replace. Then Terms have neither, so a release that does not know
	// these fields checks no UDP port.
	CheckSend   text `json:"check_send,omitempty"`
	CheckExpect text `json:"check_expect,omitempty"`
}

type port struct {
	Name     text   `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Address  string `json:"address,omitempty"` // none: that of the node
	Number   uint16 `json:"port"`
	Since    int64  `json:"since"`
	Local    bool   `json:"local,omitempty"` // as of [registry.Port]
	Open     bool   `json:"open,omitempty"`
}

// An endpoints is a [registry.Endpoints].
type endpoints struct {
	Namespace text        `json:"namespace"`
	Name      text        `json:"name"`
	ByPort    []portAddrs `json:"by_port"`
	Weights   text        `json:"weights,omitempty"`
}

type portAddrs struct {
	Port  text   `json:"port,omitempty"`
	Addrs []text `json:"addresses"`

	Places []byte `json:"places,omitempty"` // a [registry.Place] for each address; none if nothing is known of any
}

// A text is a string that may hold any bytes, as a key of a registry can. What is no UTF-8 is written as Go would quote it.
type text string

func (t text) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(t)) && !strings.HasPrefix(string(t), `"`) {
		return []byte(t), nil
	}
	return []byte(strconv.QuoteToASCII(string(t))), nil
}

func (t *text) UnmarshalText(b []byte) error {
	s := string(b)
	if strings.HasPrefix(s, `"`) {
		var err error
		if s, err = strconv.Unquote(s); err != nil {
			return fmt.Errorf("unquote %s: %w", registry.Quote(string(b)), err)
		}
	}
	*t = text(s)
	return nil
}

// A writer adds lines to a file and to their checksum.
type writer struct {
	out   *bufio.Writer
	sum   hash.Hash
	lines *json.Encoder
}

func newWriter(to io.Writer) *writer {
	w := &writer{out: bufio.NewWriter(to), sum: sha256.New()}
	w.lines = json.NewEncoder(io.MultiWriter(w.out, w.sum))
	return w
}

// finish writes the trailer.
func (w *writer) finish() error {
	if err := json.NewEncoder(w.out).Encode(trailer{hex.EncodeToString(w.sum.Sum(nil))}); err != nil {
		return err
	}
	return w.out.Flush()
}

// write writes a whole state.
func write(to io.Writer, current time.Time, s *state) error {
	w := newWriter(to)
	if err := w.lines.Encode(header{format, current.UTC(), len(s.services), len(s.endpoints), s.node}); err != nil {
		return err
	}
	for _, v := range s.services {
		if err := w.lines.Encode(line{Service: ofService(v)}); err != nil {
			return err
		}
	}
	for _, v := range s.endpoints {
		if err := w.lines.Encode(line{Endpoints: ofEndpoints(v)}); err != nil {
			return err
		}
	}
	return w.finish()
}

func ofService(v *registry.Service) *service {
	s := &service{
		Namespace: text(v.Namespace), Name: text(v.Name.Name), Rank: v.Rank, Created: v.Created,
		Terms: *v.Terms(),
	}
	if c := &s.Terms.Checks; !utf8.ValidString(c.Send) || !utf8.ValidString(c.Expect) {
		s.CheckSend, s.CheckExpect = text(c.Send), text(c.Expect)
		c.Send, c.Expect = "", ""
	}
	for i, p := range v.Ports {
		s.Ports = append(s.Ports, port{text(p.Name), p.Protocol.String(), p.ID().Address(), p.Number, v.ClaimedSince(i), p.Local, p.Open})
	}
	return s
}

func ofEndpoints(v *registry.Endpoints) *endpoints {
	e := &endpoints{Namespace: text(v.Namespace), Name: text(v.Name.Name), Weights: text(v.Weights)}
	for _, p := range v.ByPort {
		addrs := make([]text, 0, p.Addrs.Len())
		for a := range p.Addrs.All() {
			addrs = append(addrs, text(a.String()))
		}
		e.ByPort = append(e.ByPort, portAddrs{text(p.Port), addrs, []byte(p.Places)})
	}
	return e
}

// read reads a whole file. Anything that neither [write] nor that of a later release would have written is an error.
func read(file []byte) (h header, u registry.Update, err error) {
	body, err := verify(file)
	if err != nil {
		return h, u, err
	}
	first, rest, _ := bytes.Cut(body, []byte("\n"))
	if err := unmarshal(first, &h); err != nil {
		return h, u, fmt.Errorf("header: %w", err)
	}
	if h.Format != format {
		return h, u, fmt.Errorf("format %s; this program reads %q", registry.Quote(h.Format), format)
	}
	u = registry.Update{Set: true}
	known := make(map[object]bool)
	for n := 2; len(rest) > 0; n++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte("\n"))
		if err := add(&u, known, text); err != nil {
			return h, u, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if len(u.Services) != h.Services || len(u.Endpoints) != h.Endpoints {
		return h, u, fmt.Errorf("%d services and %d endpoints; the header says %d and %d", len(u.Services), len(u.Endpoints), h.Services, h.Endpoints)
	}
	return h, u, nil
}

// verify returns the lines before the trailer, if that has their checksum.
func verify(file []byte) (body []byte, err error) {
	body = bytes.TrimSuffix(file, []byte("\n"))
	body = body[:bytes.LastIndexByte(body, '\n')+1]
	var t trailer
	if unmarshal(file[len(body):], &t) != nil || t.SHA256 == "" {
		return nil, errors.New("the last line holds no checksum: the file is not whole")
	}
	if sum := sha256.Sum256(body); t.SHA256 != hex.EncodeToString(sum[:]) {
		return nil, errors.New("the checksum is another")
	}
	return body, nil
}

// unmarshal reads a line. It ignores fields that it does not know, which a later release has added: this one would not know them in the record either.
func unmarshal(text []byte, into any) error {
	return json.NewDecoder(bytes.NewReader(text)).Decode(into)
}

// An object is a service or the endpoints of one.
type object struct {
	endpoints bool
	name      registry.Name
}

// add adds the object of a line to an update.
func add(u *registry.Update, known map[object]bool, text []byte) error {
	var l line
	if err := unmarshal(text, &l); err != nil {
		return err
	}
	var is object
	switch {
	case (l.Service == nil) == (l.Endpoints == nil):
		return errors.New("neither a service nor endpoints")
	case l.Service != nil:
		v, err := l.Service.value()
		if err != nil {
			return err
		}
		is = object{false, v.Name}
		u.Services = append(u.Services, registry.Change[registry.Service]{Name: v.Name, Value: v})
	default:
		v, err := l.Endpoints.value()
		if err != nil {
			return err
		}
		is = object{true, v.Name}
		u.Endpoints = append(u.Endpoints, registry.Change[registry.Endpoints]{Name: v.Name, Value: v})
	}
	if known[is] {
		return fmt.Errorf("%v is there twice", is.name)
	}
	known[is] = true
	return nil
}

func (s *service) value() (*registry.Service, error) {
	v := &registry.Service{
		Name: registry.Name{Namespace: string(s.Namespace), Name: string(s.Name)},
		Rank: s.Rank, Created: s.Created,
	}
	claimed := make(map[registry.ListenerID]bool)
	for _, p := range s.Ports {
		at := registry.ListenerID{Protocol: registry.TCP, Number: p.Number}
		if p.Protocol == registry.UDP.String() {
			at.Protocol = registry.UDP
		} else if p.Protocol != registry.TCP.String() {
			return nil, fmt.Errorf("unknown protocol %s", registry.Quote(p.Protocol))
		}
		if p.Address != "" {
			addrs, err := registry.ParseListen(p.Address)
			if err != nil || len(addrs) != 1 {
				return nil, fmt.Errorf("bad address %s of a port", registry.Quote(p.Address))
			}
			at.Addr = addrs[0]
		}
		if p.Number == 0 || claimed[at] {
			return nil, fmt.Errorf("bad port %s", at.Short())
		}
		claimed[at] = true
		v.Ports = append(v.Ports, registry.Port{Name: string(p.Name), Addr: at.Addr, Protocol: at.Protocol, Number: p.Number, Local: p.Local, Open: p.Open})
		v.Since = append(v.Since, p.Since)
	}
	if s.CheckSend != "" { // without it no record has an answer either
		s.Terms.Checks.Send, s.Terms.Checks.Expect = string(s.CheckSend), string(s.CheckExpect)
	}
	v.SetTerms(s.Terms)
	return v, s.Terms.Check()
}

func (e *endpoints) value() (*registry.Endpoints, error) {
	v := &registry.Endpoints{Name: registry.Name{Namespace: string(e.Namespace), Name: string(e.Name)}, Weights: registry.Weights(e.Weights)}
	if err := v.Weights.Check(); err != nil {
		return nil, err
	}
	for i, p := range e.ByPort {
		if i > 0 && e.ByPort[i-1].Port >= p.Port {
			return nil, fmt.Errorf("port %s is out of order", registry.Quote(string(p.Port)))
		}
		addrs := make([]registry.Addr, 0, len(p.Addrs))
		known := make(map[registry.Addr]bool, len(p.Addrs))
		for _, text := range p.Addrs {
			a, err := registry.ParseAddr(string(text))
			if err != nil {
				return nil, fmt.Errorf("address %s: %w", registry.Quote(string(text)), err)
			}
			if known[a] {
				return nil, fmt.Errorf("address %s is there twice", registry.Quote(string(text)))
			}
			known[a] = true
			addrs = append(addrs, a)
		}
		if len(addrs) == 0 {
			return nil, fmt.Errorf("port %s has no address", registry.Quote(string(p.Port)))
		}
		places := registry.Places(p.Places)
		if err := places.Check(len(addrs)); err != nil {
			return nil, err
		}
		v.ByPort = append(v.ByPort, registry.PortAddrs{Port: string(p.Port), Addrs: registry.NewAddrs(addrs...), Places: places})
	}
	return v, nil
}

// A state is what is written.
type state struct {
	node      registry.Node
	services  []*registry.Service
	endpoints []*registry.Endpoints
}
