//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
)

// A service is one of the run: a record in the directory that kube-proxy reads.
type service struct {
	name        string
	protocol    string
	port        uint16
	annotations map[string]string
}

// write writes the service.
func (s service) write(dir string) error {
	return replace(filepath.Join(dir, "registry/services/specs", s.name), map[string]any{
		"kind": "Service", "apiVersion": "v1beta1", "id": s.name, "port": s.port, "protocol": s.protocol, "annotations": s.annotations,
	})
}

// writeEndpoints writes its endpoints.
func (s service) writeEndpoints(dir string, endpoints ...netip.AddrPort) error {
	return replace(filepath.Join(dir, "registry/services/endpoints", s.name), map[string]any{
		"kind": "Endpoints", "apiVersion": "v1beta1", "id": s.name, "endpoints": append([]netip.AddrPort{}, endpoints...),
	})
}

// replace writes a record in one step.
func replace(file string, record any) error {
	text, err := json.Marshal(record)
	next := file + ".tmp"
	return errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(next, text, 0o644), os.Rename(next, file))
}
