package truth

import (
	"fmt"
	"strings"

	"kubeproxy/registry"
)

// describe shows the record of a version.
func describe(v *Version) string {
	if s := v.Record.Slice; s != nil {
		return fmt.Sprintf("slice of %s: %v, terminating %v", s.Service, s.Ready, s.Terminating)
	}
	return content{v.Record.Service, v.Record.Endpoints}.String()
}

func describeService(s *registry.Service) string {
	if s == nil {
		return "nothing"
	}
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = fmt.Sprintf("%s%v/%s%d", p.Name, p.Protocol, p.ID().Address(), p.Number)
	}
	return fmt.Sprintf("[%s %v, created %d]", strings.Join(ports, " "), s.Terms().Affinity, s.Created)
}

func describeEndpoints(e *registry.Endpoints) string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v", e.ByPort)
}

func describeUpdate(u registry.Update) string {
	kind := "change"
	if u.Set {
		kind = "SET"
	}
	return fmt.Sprintf("%s at revision %d, %d services, %d endpoints", kind, u.Revision, len(u.Services), len(u.Endpoints))
}
