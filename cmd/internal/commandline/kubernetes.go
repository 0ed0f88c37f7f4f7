package commandline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubeproxy/registry"
)

const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// flagOf has the fields of a KubeProxyConfiguration that are flags here.
var flagOf = map[string]string{
	"bindAddress":                 "bind_address",
	"clientConnection.kubeconfig": "kubeconfig",
	"configSyncPeriod":            "config_sync_period",
	"enableProfiling":             "profiling",
	"healthzBindAddress":          "healthz_bind_address",
	"hostnameOverride":            "node_name",
	"logging.verbosity":           "v",
	"metricsBindAddress":          "metrics_bind_address",
}

// defaultOf has the defaults of Kubernetes that are not empty, of fields without a counterpart. Fields that have these values ask for
// nothing.
var defaultOf = map[string]string{
	"clientConnection.burst":              "10",
	"clientConnection.contentType":        "application/vnd.kubernetes.protobuf",
	"clientConnection.qps":                "5",
	"conntrack.maxPerCore":                "32768",
	"conntrack.min":                       "131072",
	"conntrack.tcpCloseWaitTimeout":       "1h0m0s",
	"conntrack.tcpEstablishedTimeout":     "24h0m0s",
	"detectLocalMode":                     "ClusterCIDR",
	"iptables.localhostNodePorts":         "true",
	"iptables.masqueradeBit":              "14",
	"iptables.minSyncPeriod":              "1s",
	"iptables.syncPeriod":                 "30s",
	"ipvs.syncPeriod":                     "30s",
	"logging.flushFrequency":              "5s",
	"logging.format":                      "text",
	"logging.options.json.infoBufferSize": "0",
	"logging.options.text.infoBufferSize": "0",
	"mode":                                "userspace",
	"nftables.masqueradeBit":              "14",
	"nftables.minSyncPeriod":              "1s",
	"nftables.syncPeriod":                 "30s",
	"oomScoreAdj":                         "-999",
}

// meaningless has fields that no user-space proxy needs, whatever their value.
var meaningless = []string{
	"clusterCIDR", // which packets to masquerade: to endpoints, all connections come from the proxy
}

// kubernetes reads a KubeProxyConfiguration. A field that asks for something which this proxy does not do is an error.
func kubernetes(text []byte, fields map[string]any) ([]Setting, []string, error) {
	if fields["kind"] != kind || fields["apiVersion"] != apiVersion {
		return nil, nil, fmt.Errorf("kind %s of apiVersion %s is unknown: want names of flags, or a %s of %s",
			shown(fields["kind"]), shown(fields["apiVersion"]), kind, apiVersion)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	values := make(map[string]any)
	flatten(values, "", fields)
	var settings []Setting
	var ignored, refused []string
	for _, field := range slices.Sorted(maps.Keys(values)) {
		value := values[field]
		flag := flagOf[field]
		switch {
		case flag == "" && slices.Contains(meaningless, field):
			ignored = append(ignored, field)
		case empty(value): // the default
		case flag != "":
			all, err := scalars(value)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", field, err)
			}
			top, _, _ := strings.Cut(field, ".")
			settings = append(settings, Setting{Flag: flag, Values: all, Where: lineOf(text, top) + field + ": "})
		case fmt.Sprint(value) == defaultOf[field]:
			ignored = append(ignored, field)
		default:
			refused = append(refused, label(field)+": "+shown(value))
		}
	}
	const most = 20 // in one line
	if n := len(refused); n > 0 {
		more := ""
		if n > most {
			refused, more = refused[:most], fmt.Sprintf(" and %d more", n-most)
		}
		return nil, nil, fmt.Errorf("these fields ask for what this proxy does not do: %s%s; remove them, or give them their defaults", strings.Join(refused, ", "), more)
	}
	if len(ignored) > 0 {
		return settings, []string{"these fields have no effect: " + strings.Join(ignored, ", ")}, nil
	}
	return settings, nil, nil
}

// flatten lists the fields of an object by their paths. A list is a value.
func flatten(to map[string]any, prefix string, fields map[string]any) {
	for name, value := range fields {
		if object, ok := value.(map[string]any); ok {
			flatten(to, prefix+name+".", object)
			continue
		}
		to[prefix+name] = value
	}
}

// empty reports whether a field has the value that stands for its default.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0s"
	case json.Number:
		return v == "0"
	case bool:
		return !v
	case []any:
		return len(v) == 0
	}
	return false
}

// shown is a value as errors show it, bounded.
func shown(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil || len(text) > 64 {
		return registry.Quote(fmt.Sprint(value))
	}
	return string(text)
}
