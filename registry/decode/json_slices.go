package decode

import (
	"encoding/json"

	"kubeproxy/registry/jsontext"
)

// serviceName reads the label that ties a slice to its service; ok is false if there is none.
func (b *body) serviceName() (name string, ok bool, err error) {
	raw := b.label(labelServiceName)
	err = jsontext.ReadString("label "+labelServiceName, raw, &name)
	return name, !jsontext.IsNull(raw), err
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
		return jsontext.Unmarshal(field, raw, new(bool))
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
	if err := jsontext.ReadString("addressType", b.AddressType, &kind); err != nil {
		return err
	}
	if p.kind, err = parseAddressType(kind); err != nil {
		return err
	}
	if err := p.addEndpoints(b); err != nil {
		return err
	}
	return jsontext.EachOf("ports", b.Ports, p.addPort)
}

// addEndpoints reads the endpoints of a body. It is done in place, as in [body.read]: package json takes twice as long, and four times the memory.
func (p *sliceParts) addEndpoints(b *body) error {
	if jsontext.IsNull(b.Endpoints) {
		return nil
	}
	if b.Endpoints[0] != '[' {
		return jsontext.Unmarshal("endpoints", b.Endpoints, new([]struct{})) // which says what is wrong with it
	}
	for element := range jsontext.Elements([]byte(b.Endpoints)) {
		var e sliceEndpoint
		if err := e.read(element); err != nil {
			return err
		}
		p.addEndpoint(e)
	}
	return nil
}

// read finds the fields of an endpoint, as package json would.
func (e *sliceEndpoint) read(element []byte) error {
	if string(element) == "null" {
		return nil
	}
	if element[0] != '{' {
		return jsontext.Unmarshal("endpoints", element, new(struct{})) // which says what is wrong with it
	}
	var addresses, conditions json.RawMessage
	for key, raw := range jsontext.Members(element) {
		switch {
		case jsontext.IsKey(key, "addresses"):
			addresses = raw
		case jsontext.IsKey(key, "conditions"):
			conditions = raw
		}
	}
	if err := e.readAddresses(addresses); err != nil || jsontext.IsNull(conditions) {
		return err
	}
	return e.conditions.read(conditions)
}

func (e *sliceEndpoint) readAddresses(raw json.RawMessage) error {
	const field = "endpoints.addresses"
	if jsontext.IsNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return jsontext.Unmarshal(field, raw, new([]string))
	}
	for element := range jsontext.Elements([]byte(raw)) {
		address, err := jsontext.StringOf(field, string(element))
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
		return jsontext.Unmarshal(field, raw, new(struct{}))
	}
	for key, value := range jsontext.Members(raw) {
		var err error
		switch {
		case jsontext.IsKey(key, "ready"):
			err = readCondition(field+".ready", value, &c.ready)
		case jsontext.IsKey(key, "serving"):
			err = readCondition(field+".serving", value, &c.serving)
		case jsontext.IsKey(key, "terminating"):
			err = readCondition(field+".terminating", value, &c.terminating)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
