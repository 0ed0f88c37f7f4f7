package decode

import (
	"cmp"
	"encoding/json"

	"kubeproxy/registry"
)

// serviceName reads the label that ties a slice to its service; ok is false if there is none.
func (b *body) serviceName() (name string, ok bool, err error) {
	raw := b.label(labelServiceName)
	err = readString("label "+labelServiceName, raw, &name)
	return name, !isNull(raw), err
}

// readCondition reads the boolean found in a field. Null is as good as no field.
func readCondition(field string, raw json.RawMessage, into *condition) error {
	switch string(raw) {
	case "true":
		*into = isTrue
	case "false":
		*into = isFalse
	case "null":
		*into = unsaid
	default:
		return unmarshal(field, raw, new(bool))
	}
	return nil
}

// slice reads a slice, leaving out entries that no client could connect to.
func (b *body) slice(p *sliceParts) error {
	if b.label(labelOtherProxy) != nil || b.label(labelHeadless) != nil {
		p.excluded = true
		return nil
	}
	service, ok, err := b.serviceName()
	if err != nil {
		return err
	}
	if err := p.belongsTo(service, ok); err != nil {
		return err
	}
	var kind string
	if err := readString("addressType", b.AddressType, &kind); err != nil {
		return err
	}
	if p.kind, err = parseAddressType(kind); err != nil {
		return err
	}
	if err := p.addEndpoints(b); err != nil {
		return err
	}
	return eachOf("ports", b.Ports, p.addPort)
}

// addEndpoints reads the endpoints of a body. It is done in place, as in [body.read]: package json takes twice as long, and four times the memory.
func (p *sliceParts) addEndpoints(b *body) error {
	if isNull(b.Endpoints) {
		return nil
	}
	if b.Endpoints[0] != '[' {
		return unmarshal("endpoints", b.Endpoints, new([]struct{})) // which says what is wrong with it
	}
	for element := range elements([]byte(b.Endpoints)) {
		var e sliceEndpoint
		if err := e.read(p.node, element); err != nil {
			return err
		}
		p.addEndpoint(e)
	}
	return nil
}

// read finds the fields of an endpoint, as package json would.
func (e *sliceEndpoint) read(node registry.Node, element []byte) error {
	if string(element) == "null" {
		return nil
	}
	if element[0] != '{' {
		return unmarshal("endpoints", element, new(struct{})) // which says what is wrong with it
	}
	var addresses, conditions json.RawMessage
	var err error
	for key, raw := range members(element) {
		switch {
		case isKey(key, "addresses"):
			addresses = raw
		case isKey(key, "conditions"):
			conditions = raw
		case node == registry.Node{}: // then it does not matter where the endpoint is
		case isKey(key, "nodeName"):
			var name string
			err = cmp.Or(err, readString("endpoints.nodeName", raw, &name))
			node.SetNode(&e.place, name)
		case isKey(key, "zone"):
			var zone string
			err = cmp.Or(err, readString("endpoints.zone", raw, &zone))
			node.SetZone(&e.place, zone)
		case isKey(key, "topology"): // before discovery.k8s.io/v1 had zone
			var all map[string]string
			err = cmp.Or(err, unmarshal("endpoints.topology", raw, &all))
			node.SetZone(&e.place, all[zoneLabel])
		case isKey(key, "hints"):
			err = cmp.Or(err, e.readHints(node, raw))
		}
	}
	if err = cmp.Or(err, e.readAddresses(addresses)); err != nil || isNull(conditions) {
		return err
	}
	return e.conditions.read(conditions)
}

// readHints reads which nodes an endpoint is for.
func (e *sliceEndpoint) readHints(node registry.Node, raw json.RawMessage) error {
	type named struct {
		Name string `json:"name"`
	}
	var hints struct {
		ForZones last[[]named] `json:"forZones"`
		ForNodes last[[]named] `json:"forNodes"`
	}
	err := unmarshal("endpoints.hints", raw, &hints)
	for _, zone := range hints.ForZones.Value {
		node.HintZone(&e.place, zone.Name)
	}
	for _, n := range hints.ForNodes.Value {
		node.HintNode(&e.place, n.Name)
	}
	return err
}

func (e *sliceEndpoint) readAddresses(raw json.RawMessage) error {
	const field = "endpoints.addresses"
	if isNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return unmarshal(field, raw, new([]string))
	}
	for element := range elements([]byte(raw)) {
		address, err := stringOf(field, string(element))
		if err != nil {
			return err
		}
		if e.addresses++; e.addresses == 1 {
			e.address = address
		}
	}
	return nil
}

func (c *sliceConditions) read(raw json.RawMessage) error {
	const field = "endpoints.conditions"
	if raw[0] != '{' {
		return unmarshal(field, raw, new(struct{}))
	}
	for key, value := range members(raw) {
		var err error
		switch {
		case isKey(key, "ready"):
			err = readCondition(field+".ready", value, &c.ready)
		case isKey(key, "serving"):
			err = readCondition(field+".serving", value, &c.serving)
		case isKey(key, "terminating"):
			err = readCondition(field+".terminating", value, &c.terminating)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
