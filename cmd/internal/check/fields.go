package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/registry/spelling"
)

// Fields that no version of Kubernetes has are most often misspelled ones. The proxy ignores a field that it does not know, as
// package json does: {"endpoint": ["10.0.0.1:80"]} is a record without endpoints. So the check warns of them, and where a record offers
// nothing for what may be such a mistake, that is an error.

// Fields are the fields that an object may have, and what each holds: nil for a value that is not looked into. All elements of
// an array have the same fields.
type fields map[string]fields

// known says which fields the records of a kind have, by the form of their version: flat for v1beta1 and v1beta2, nested for
// v1beta3, v1 and every version of endpoint slices. They are all the fields that some version of that form has or had, whether the proxy reads them or not.
var known = map[registry.Kind]struct{ flat, nested fields }{
	registry.KindService:   {flat: with(flatMeta, flatService), nested: with(nestedMeta, fields{"spec": serviceSpec, "status": nil})},
	registry.KindEndpoints: {flat: with(flatMeta, flatEndpoints), nested: with(nestedMeta, nestedEndpoints)},

	registry.KindEndpointSlice: {nested: with(nestedMeta, endpointSlice)},
}

var (
	flatMeta = leaves("kind apiVersion id uid creationTimestamp deletionTimestamp selfLink resourceVersion namespace generateName annotations labels")

	nestedMeta = fields{"kind": nil, "apiVersion": nil, "metadata": leaves("name generateName namespace selfLink uid resourceVersion generation " +
		"creationTimestamp deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences initializers finalizers clusterName managedFields")}

	servicePort = leaves("name protocol appProtocol port targetPort nodePort containerPort")

	flatService = with(leaves("port protocol portName selector createExternalLoadBalancer publicIPs containerPort portalIP proxyPort sessionAffinity"),
		fields{"ports": servicePort})

	serviceSpec = with(leaves("selector clusterIP clusterIPs portalIP type externalIPs publicIPs deprecatedPublicIPs createExternalLoadBalancer "+
		"sessionAffinity loadBalancerIP loadBalancerClass loadBalancerSourceRanges allocateLoadBalancerNodePorts externalName "+
		"externalTrafficPolicy internalTrafficPolicy trafficDistribution healthCheckNodePort publishNotReadyAddresses ipFamily ipFamilies "+
		"ipFamilyPolicy topologyKeys port protocol portName containerPort targetPort"),
		fields{"ports": servicePort, "sessionAffinityConfig": {"clientIP": leaves("timeoutSeconds")}})

	subset = fields{
		"addresses":         leaves("ip hostname nodeName targetRef"),
		"notReadyAddresses": leaves("ip hostname nodeName targetRef"),
		"ports":             leaves("name port protocol appProtocol"),
	}
	flatEndpoints   = fields{"protocol": nil, "endpoints": nil, "targetRefs": nil, "subsets": subset}
	nestedEndpoints = fields{"protocol": nil, "endpoints": leaves("ip port protocol name targetRef"), "subsets": subset}
)

var endpointSlice = fields{
	"addressType": nil,
	"endpoints": with(leaves("addresses hostname targetRef nodeName zone hints topology deprecatedTopology"),
		fields{"conditions": leaves("ready serving terminating")}),
	"ports": leaves("name protocol port appProtocol"),
}

// leaves makes fields of names, separated by blanks.
func leaves(names string) fields {
	f := make(fields)
	for name := range strings.FieldsSeq(names) {
		f[name] = nil
	}
	return f
}

// with returns the fields of both.
func with(f, more fields) fields {
	both := maps.Clone(f)
	maps.Copy(both, more)
	return both
}

// offersNothing reports whether a record can be used and has no endpoint, or no port although it lists some.
func offersNothing(r decode.Record) bool {
	switch {
	case r.Endpoints != nil:
		return len(r.Endpoints.ByPort) == 0
	case r.Slice != nil:
		return r.Slice.Service != "" && len(r.Slice.Ready)+len(r.Slice.Terminating) == 0
	}
	return r.Service != nil && len(r.Service.Ports) == 0 && r.NoNodePort > 0
}

// findUnknownFields adds a warning of the fields of a record that are unknown in its version. It is an error if the record offers
// nothing, and one of the fields may stand for what it should offer.
func (v *Verdict) findUnknownFields(kind registry.Kind, value []byte, offersNothing bool) {
	var version struct{ APIVersion string }
	if json.Unmarshal(value, &version) != nil {
		return // which is an error of its own
	}
	mine, others := known[kind].flat, known[kind].nested
	switch nested, ok := decode.NestedForm(kind, version.APIVersion); {
	case !ok:
		return // as well
	case nested:
		mine, others = others, mine
	}
	w := fieldWalk{seen: make(map[string]bool), others: others}
	w.object("", mine, value)
	switch {
	case w.unknown.count == 0:
	case offersNothing && (w.mistyped || !w.listsEndpoints && kind != registry.KindService):
		v.find(Error, MistypedField, "the record offers nothing, and these fields are unknown in this version, and ignored: "+w.unknown.String())
	default:
		v.find(Warning, UnknownField, "unknown in this version, and ignored: "+w.unknown.String())
	}
}

// A fieldWalk looks for unknown fields in one record. It counts a path once, however many elements of an array have it.
type fieldWalk struct {
	seen    map[string]bool
	others  fields // of a record in the other form
	unknown list

	mistyped       bool // one of the first unknown fields resembles a known one, outside metadata
	listsEndpoints bool // there is a field for them, whatever it holds
}

// value looks at what the field at a path holds. What is neither an object nor an array is not this walk's concern.
func (w *fieldWalk) value(path string, f fields, value json.RawMessage) {
	if len(f) == 0 {
		return
	}
	switch trimmed := bytes.TrimLeft(value, " \t\r\n"); {
	case len(trimmed) > 0 && trimmed[0] == '{':
		w.object(path+".", f, value)
	case len(trimmed) > 0 && trimmed[0] == '[':
		var elements []json.RawMessage
		if json.Unmarshal(value, &elements) == nil {
			for _, e := range elements {
				w.value(path, f, e)
			}
		}
	}
}

func (w *fieldWalk) object(prefix string, f fields, value json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if field, ok := f.find(name); ok {
			w.listsEndpoints = w.listsEndpoints || prefix == "" && (field == "endpoints" || field == "subsets")
			w.value(prefix+name, f[field], members[name])
			continue
		}
		if path := prefix + name; !w.seen[path] {
			w.seen[path] = true
			w.unknown.add(func() string {
				hint := w.hint(prefix, name, f)
				w.mistyped = w.mistyped || hint != "" && prefix != "metadata."
				return registry.Quote(path) + hint
			})
		}
	}
}

// hint says what may have been meant by an unknown field.
func (w *fieldWalk) hint(prefix, name string, f fields) string {
	if _, ok := w.others.find(name); ok && prefix == "" {
		return " (a field of other versions: see apiVersion)"
	}
	best, least := "", 1+len(name)/3 // more letters than that make another word
	for _, candidate := range slices.Sorted(maps.Keys(f)) {
		if d := spelling.Distance(strings.ToLower(name), strings.ToLower(candidate), least); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// find returns the name of the field that package json takes a key for: letter case does not matter.
func (f fields) find(key string) (field string, ok bool) {
	if _, ok := f[key]; ok {
		return key, true
	}
	for field := range f {
		if strings.EqualFold(field, key) {
			return field, true
		}
	}
	return "", false
}
