package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The labels that mean something to a proxy (kubernetes.io/docs/reference/labels-annotations-taints).
const (
	labelServiceName = "kubernetes.io/service-name"               // ties a slice to its service
	labelOtherProxy  = "service.kubernetes.io/service-proxy-name" // on a service and its slices: another program is their proxy
	labelHeadless    = "service.kubernetes.io/headless"           // on slices of a service whose clients go by DNS
)

// label gives the value of a label as it is written, nil if there is none. Labels of other people may hold anything, and so
// may a field of that name which is no object.
func (b *body) label(name string) (raw json.RawMessage) {
	if len(b.labels) == 0 || b.labels[0] != '{' {
		return nil
	}
	for key, value := range members(b.labels) {
		if string(key) == name { // in this letter case only: labels are no fields
			raw = value
		}
	}
	return raw
}

// annotationsThatCount gives the annotations that set terms of a service, nil for none. Others may hold anything, and so may a field of
// that name which is no object.
func (b *body) annotationsThatCount() (found map[string]string, err error) {
	if len(b.annotations) == 0 || b.annotations[0] != '{' {
		return nil, nil
	}
	for key, raw := range members(b.annotations) {
		if !slices.Contains(annotationsThatCount[:], string(key)) {
			continue
		}
		var value string
		if err := readString("annotations."+string(key), raw, &value); err != nil {
			return nil, err
		}
		if found == nil {
			found = make(map[string]string)
		}
		found[string(key)] = value
	}
	return found, nil
}

// serviceName reads the label that ties a slice to its service; ok is false if there is none.
func (b *body) serviceName() (name string, ok bool, err error) {
	raw := b.label(labelServiceName)
	err = readString("label "+labelServiceName, raw, &name)
	return name, !isNull(raw), err
}

// belongsTo sets the service of a slice by the label that names it, if there is one. What no key can hold is the name of no service:
// see [ParseKey].
func (p *sliceParts) belongsTo(service string, ok bool) error {
	switch {
	case !ok:
		return errors.New("no label " + labelServiceName + ", so the slice belongs to no service")
	case service == "":
		return errors.New("label " + labelServiceName + " is empty")
	case len(service) > maxName:
		return fmt.Errorf("label %s of %d bytes is longer than %d", labelServiceName, len(service), maxName)
	case strings.Contains(service, "/"):
		return fmt.Errorf("label %s holds %s, which is no name of a service", labelServiceName, Quote(service))
	}
	p.service = service
	return nil
}
