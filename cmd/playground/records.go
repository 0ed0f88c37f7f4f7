package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"kubeproxy/registry"
)

// A service is one of the demo services: a port that the proxy opens, and the backends behind it.
type service struct {
	name     string
	kind     string // how to call it: http, tcp or udp
	port     int
	instead  int // the port that it should have had, if that was taken; else 0
	backends []*backend
}

// addr is where clients find the service: at the proxy.
func (s *service) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// network is what package net calls the service's transport.
func (s *service) network() string {
	if s.kind == "udp" {
		return "udp"
	}
	return "tcp"
}

// openService opens the backends of a service and finds a port for it.
func openService(name, kind string, wanted int) (*service, error) {
	s := &service{name: name, kind: kind}
	var err error
	if s.port, err = freePort(s.network(), wanted); err != nil {
		return nil, err
	}
	if s.port != wanted {
		s.instead = wanted
	}
	for i := range 3 {
		b, err := openBackend(kind, fmt.Sprintf("%s-%d", name, i+1))
		if err != nil {
			return nil, err
		}
		s.backends = append(s.backends, b)
	}
	return s, nil
}

// freePort finds a port that the proxy can listen on: the one wanted, or else the next in steps of
// ten. (Another program may come first even so. Then the proxy says so, and tries again.)
func freePort(network string, wanted int) (int, error) {
	for port := wanted; port < wanted+1000; port += 10 {
		if isFree(network, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free %s port from %d on", network, wanted)
}

// isFree reports whether an address has no listener.
func isFree(network, addr string) bool {
	if network == "udp" {
		conn, err := net.ListenPacket(network, addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// A record is one key of the registry and its value.
type record struct{ key, value string }

// records are what a v0.4 master would have stored for the service.
func (s *service) records() []record {
	return []record{specRecord(s.name, s.network(), s.port), endpointsRecord(s.name, s.backendAddrs())}
}

func (s *service) backendAddrs() []string {
	var addrs []string
	for _, b := range s.backends {
		addrs = append(addrs, b.addr)
	}
	return addrs
}

// specRecord says that a service is offered on a port.
func specRecord(name, network string, port int) record {
	return record{registry.SpecsPrefix + name, fmt.Sprintf(
		`{"kind":"Service","id":%q,"creationTimestamp":null,"apiVersion":"v1beta1","port":%d,"protocol":%q,"selector":{"name":%q},"containerPort":0}`,
		name, port, strings.ToUpper(network), name)}
}

// endpointsRecord says where the backends of a service answer.
func endpointsRecord(name string, addrs []string) record {
	list, err := json.Marshal(addrs)
	if err != nil {
		panic(err) // a list of strings
	}
	return record{registry.EndpointsPrefix + name, fmt.Sprintf(
		`{"kind":"Endpoints","id":%q,"creationTimestamp":null,"apiVersion":"v1beta1","endpoints":%s}`, name, list)}
}
