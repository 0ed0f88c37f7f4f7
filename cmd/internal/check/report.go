package check

import (
	"fmt"
	"slices"
	"strings"
)

// A Report is what there is to say about a registry. Its JSON is documented in docs/check.md: fields
// and codes may be added, and none changes its meaning.
type Report struct {
	Source   string    `json:"source"`
	Revision int64     `json:"revision,omitempty"` // of etcd
	Against  string    `json:"against,omitempty"`  // the registry that it was compared with: see [Compare]
	Records  []Verdict `json:"records"`            // one for each key, in the order of the keys' bytes
	Findings []Finding `json:"findings"`           // about no single record
	Summary  Summary   `json:"summary"`
}

// Failed reports whether anything is wrong; with strict, a warning is enough.
func (r *Report) Failed(strict bool) bool {
	return r.Summary.Errors > 0 || strict && (r.Summary.Warnings > 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == Warning }))
}

// A Verdict is what there is to say about one record.
type Verdict struct {
	Key      string    `json:"key"`             // quoted if it is long, or not made of the letters of keys
	Kind     string    `json:"kind,omitempty"`  // Service, Endpoints or EndpointSlice
	Name     string    `json:"name,omitempty"`  // as the logs show it
	Verdict  string    `json:"verdict"`         // ok, ignored, warning or error: the worst of the findings
	Holds    string    `json:"holds,omitempty"` // what the record offers, if it can be used
	Findings []Finding `json:"findings"`
}

// What a verdict can be, and the levels of findings.
const (
	OK      = "ok"
	Ignored = "ignored" // not ours
	Info    = "info"    // a finding that makes no difference
	Warning = "warning"
	Error   = "error"
)

// A Finding is one thing to say, in a line that is safe to show.
type Finding struct {
	Level string `json:"level"`
	Code  Code   `json:"code"`
	Text  string `json:"text"`
}

// A Code says what a finding is about, for programs.
type Code string

// The codes of errors.
const (
	BadKey            Code = "bad-key"            // of the wrong depth, or a name in it is empty
	BadRecord         Code = "bad-record"         // the value cannot be used
	Encrypted         Code = "encrypted"          // the value is for the API server alone
	MistypedField     Code = "mistyped-field"     // the record offers nothing, and has unknown fields that may be the reason
	Unreadable        Code = "unreadable"         // what lies in the directory cannot be read as a value
	PortConflict      Code = "port-conflict"      // ports of a service belong to others
	ForbiddenPort     Code = "forbidden-port"     // a guard of the proxy refuses them
	OwnListener       Code = "own-listener"       // endpoints are listeners of the proxy itself
	ForbiddenEndpoint Code = "forbidden-endpoint" // a guard of the proxy would not have them dialled
	OnlyHere          Code = "only-here"          // the other registry has no such key
	OnlyThere         Code = "only-there"         // only the other registry has the key
	AnotherValue      Code = "another-value"      // the other registry has another value
	AnotherOwner      Code = "another-owner"      // the record is the same, and its ports go to others there
)

// The codes of warnings.
const (
	OddRecord          Code = "odd-record"            // what the proxy itself warns of
	UnknownField       Code = "unknown-field"         // no version of the record's form has it
	UnsettledConflict  Code = "unsettled-conflict"    // who has a port may change when a proxy restarts
	HealthPortConflict Code = "health-port-conflict"  // a healthCheckNodePort that something else has, or will have
	Shadowed           Code = "shadowed"              // a flat key, while the namespaced one of the same name counts
	NoService          Code = "no-service"            // endpoints that no service offers
	NoLocalEndpoint    Code = "no-local-endpoint"     // a service whose clients are refused on this node
	NoEndpoints        Code = "no-endpoints"          // a service whose clients are refused
	NoEndpointsForPort Code = "no-endpoints-for-port" // the same for some of its ports, by their names
	NoWeight           Code = "no-weight"             // a service whose clients are refused, since its endpoints have weight 0
	TooManyListeners   Code = "too-many-listeners"    // more than may be open under the descriptor limit
	NoRecords          Code = "no-records"            // nothing there, which is most often another etcd's nothing
)

// The codes of the rest.
const (
	ForeignKey       Code = "foreign-key"       // below the prefix, and of none of the kinds of records
	Elsewhere        Code = "elsewhere"         // files and directories outside registry/services
	BeingWritten     Code = "being-written"     // a difference in a record that was written while the two were read
	LeftOut          Code = "left-out"          // a file that is no record by its name
	Superseded       Code = "superseded"        // endpoints of a service that has endpoint slices
	AddressElsewhere Code = "address-elsewhere" // no interface of this machine has an address of the service
	NoNodePort       Code = "no-node-port"      // ports of a service that are not offered, with -service_port=nodePort
	Excluded         Code = "excluded"          // a slice that is not for this proxy, by its labels
	PrivilegedPorts  Code = "privileged-ports"  // ports below 1024
	LocalPorts       Code = "local-ports"       // ports that the machine may give to a connection
)

// A Summary counts.
type Summary struct {
	Records   int `json:"records"`
	Services  int `json:"services"`  // in force
	Endpoints int `json:"endpoints"` // in force: a record of endpoints, or all slices of a service together
	Listeners int `json:"listeners"` // what a proxy would open

	OK       int `json:"ok"` // records by their verdict
	Ignored  int `json:"ignored"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
}

// count counts the records by their verdicts.
func (r *Report) count() {
	s := &r.Summary
	s.Records, s.OK, s.Ignored, s.Warnings, s.Errors = len(r.Records), 0, 0, 0, 0
	for _, v := range r.Records {
		switch v.Verdict {
		case OK:
			s.OK++
		case Ignored:
			s.Ignored++
		case Warning:
			s.Warnings++
		case Error:
			s.Errors++
		}
	}
}

// find adds a finding; the worst decides the verdict.
func (v *Verdict) find(level string, code Code, text string) {
	v.Findings = append(v.Findings, Finding{level, code, text})
	if level == Error || level == Warning && v.Verdict != Error {
		v.Verdict = level
	}
}

// maxListed is how many of the things that one finding is about are named.
const maxListed = 3

// A list is the things that one finding is about, of which the first few are named.
type list struct {
	count int
	named []string
}

func (l *list) add(text func() string) {
	if l.count++; l.count <= maxListed {
		l.named = append(l.named, text())
	}
}

func (l *list) String() string {
	text := strings.Join(l.named, ", ")
	if more := l.count - len(l.named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
