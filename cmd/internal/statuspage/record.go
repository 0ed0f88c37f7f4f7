package statuspage

import (
	"encoding/json"

	"kubeproxy/registry"
)

// A flatRecord is a service as v1beta1 writes it, with the ports as v0.15 added them.
type flatRecord struct {
	Kind       string       `json:"kind"`
	APIVersion string       `json:"apiVersion"`
	ID         string       `json:"id"`
	Ports      []recordPort `json:"ports"`
	Affinity   string       `json:"sessionAffinity,omitempty"`
	Ranges     []string     `json:"loadBalancerSourceRanges,omitempty"`
}

type recordPort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

// recordText writes what is in force of a service, as a record.
func recordText(s *registry.Service) string {
	r := flatRecord{Kind: "Service", APIVersion: "v1beta1", ID: s.Name.Name}
	for _, p := range s.Ports[:min(len(s.Ports), maxServicePorts)] {
		r.Ports = append(r.Ports, recordPort{p.Name, p.Protocol.String(), p.Number})
	}
	if s.Affinity != registry.AffinityNone {
		r.Affinity = s.Affinity.String()
	}
	for _, from := range s.SourceRanges[:min(len(s.SourceRanges), maxServicePorts)] {
		r.Ranges = append(r.Ranges, from.String())
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
