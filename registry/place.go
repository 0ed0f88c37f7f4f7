package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Node is the node that reads the records. What is empty is not known, and then nothing that depends on it counts.
type Node struct {
	Name string // by which records of Kubernetes call it
	Zone string
}

// A Place is where an endpoint is, as seen from one node, which nodes its record has it for, and whether it only stands by. The zero value says
// nothing.
type Place uint8

// What a place consists of. With a hint, the record says which nodes are to use the endpoint first.
const (
	OnNode       Place = 1 << iota // it runs on this node
	InZone                         // it is in the zone of this node
	OutOfZone                      // it is in another zone
	ForNode                        // a hint names this node
	ForOtherNode                   // a hint names other nodes only
	ForZone                        // a hint names the zone of this node
	ForOtherZone                   // a hint names other zones only
	Backup                         // it stands by: see [BackupAnnotation]
)

// SetNode sets by which name an endpoint's node goes.
func (n Node) SetNode(p *Place, name string) {
	if *p &^= OnNode; n.Name != "" && name == n.Name {
		*p |= OnNode
	}
}

// SetZone sets the zone of an endpoint; "" if it is not known.
func (n Node) SetZone(p *Place, zone string) {
	switch *p &^= InZone | OutOfZone; {
	case n.Zone == "" || zone == "":
	case zone == n.Zone:
		*p |= InZone
	default:
		*p |= OutOfZone
	}
}

// HintNode adds a hint for a node.
func (n Node) HintNode(p *Place, name string) { hint(p, n.Name, name, ForNode, ForOtherNode) }

// HintZone adds a hint for a zone.
func (n Node) HintZone(p *Place, zone string) { hint(p, n.Zone, zone, ForZone, ForOtherZone) }

func hint(p *Place, here, named string, ours, others Place) {
	switch {
	case here == "":
	case named == here:
		*p = *p&^others | ours
	case *p&ours == 0:
		*p |= others
	}
}

// String says where an endpoint is, and whether it is a backup, in a few words; "" if neither is known.
func (p Place) String() string {
	where := ""
	switch {
	case p&OnNode != 0:
		where = "this node"
	case p&InZone != 0:
		where = "this zone"
	case p&OutOfZone != 0:
		where = "another zone"
	}
	switch {
	case p&Backup == 0:
		return where
	case where == "":
		return "backup"
	}
	return "backup in " + where
}

// Places are those of a list of addresses, in its order: one byte for each. "" says nothing of any.
type Places string

// At returns the place of the address at an index.
func (p Places) At(i int) Place {
	if i < len(p) {
		return Place(p[i])
	}
	return 0
}

// PlacesOf returns the places of a list of addresses.
func PlacesOf(addrs Addrs, of func(Addr) Place) Places {
	places, any := make([]byte, 0, addrs.Len()), false
	for a := range addrs.All() {
		p := of(a)
		places, any = append(places, byte(p)), any || p != 0
	}
	if !any {
		return ""
	}
	return Places(places)
}

// Only returns what the places say in these bits.
func (p Places) Only(bits Place) Places {
	kept, any := []byte(p), false
	for i := range kept {
		kept[i] &= byte(bits)
		any = any || kept[i] != 0
	}
	if !any {
		return ""
	}
	return Places(kept)
}

// Check reports an error if no record gives these places to so many addresses.
func (p Places) Check(addrs int) error {
	if p != "" && len(p) != addrs {
		return errors.New("bad places of endpoints")
	}
	return nil
}

// A Distribution says which endpoints a service prefers for the clients of a node.
type Distribution uint8

// The distributions.
const (
	Anywhere       Distribution = iota
	PreferSameZone              // those in the zone of the node
	PreferSameNode              // those on the node, and then those in its zone

	endOfDistributions
)

// String names a distribution as a record does.
func (d Distribution) String() string {
	return [...]string{"", "PreferSameZone", "PreferSameNode"}[d]
}

// Nearness divides the endpoints of a list by their places: it returns a rank for each, and clients are given those of a lower rank first. nil:
// all are alike.
//
// Hints come first, and count if each endpoint has one and one is for this node, or its zone: so has Kubernetes' own proxy it, for a record that
// is being changed has them in part. Backups come after all others, and among them the near ones first.
func (d Distribution) Nearness(places Places, n int) []uint8 {
	if places == "" {
		return nil
	}
	all, any := Place(0xff), Place(0) // hints that each has, and that one has
	for i := range n {
		p := places.At(i)
		any |= p
		if p&(ForNode|ForOtherNode) != 0 {
			p |= ForNode | ForOtherNode
		}
		if p&(ForZone|ForOtherZone) != 0 {
			p |= ForZone | ForOtherZone
		}
		all &= p
	}
	var near []Place // the nearest first
	if all&any&ForNode != 0 {
		near = append(near, ForNode)
	}
	if all&any&ForZone != 0 {
		near = append(near, ForZone)
	}
	if near == nil {
		near = [...][]Place{nil, {InZone}, {OnNode, InZone}}[d]
	}
	ranks, differ := make([]uint8, n), false
	for i := range ranks {
		rank := slices.IndexFunc(near, func(bit Place) bool { return places.At(i)&bit != 0 })
		if rank < 0 {
			rank = len(near)
		}
		if places.At(i)&Backup != 0 {
			rank += len(near) + 1
		}
		ranks[i] = uint8(rank)
		differ = differ || ranks[i] != ranks[0]
	}
	if !differ {
		return nil
	}
	return ranks
}

// ZoneAnnotation names the zones of the endpoints of an Endpoints or an EndpointSlice.
const ZoneAnnotation = AnnotationPrefix + "zone"

// maxZoneName is how long the name of a zone, or of a node, may be, as in Kubernetes.
const maxZoneName = 253

// CheckZone reports an error if a text is no name of a zone.
func CheckZone(zone string) error {
	if zone == "" || len(zone) > maxZoneName || strings.ContainsFunc(zone, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return fmt.Errorf("%s is no name of letters, digits, -, . and _", Quote(zone))
	}
	return nil
}

// Zones are those of the endpoints of a record.
type Zones struct {
	all   string // of each address, unless it is ""
	table hostTable[string]
}

// ParseZones reads the annotation: a zone for all addresses of the record, or HOST=ZONE and HOST:PORT=ZONE with commas between.
func ParseZones(annotation string) (z Zones, err error) {
	if !strings.Contains(annotation, "=") {
		return Zones{all: annotation}, inAnnotation(ZoneAnnotation, CheckZone(annotation))
	}
	z.table = newHostTable[string]()
	for entry := range strings.SplitSeq(annotation, ",") {
		text, zone, ok := strings.Cut(strings.TrimSpace(entry), "=")
		of, key, err := z.table.placeFor(text)
		if !ok || err != nil {
			return z, inAnnotation(ZoneAnnotation, fmt.Errorf("%s is no zone of an address, such as 10.1.2.3=a, 10.1.2.3:80=a or [fd00::3]:80=a", Quote(entry)))
		}
		if _, again := of[key]; again {
			return z, inAnnotation(ZoneAnnotation, fmt.Errorf("%s has two zones", Quote(text)))
		}
		if err := CheckZone(zone); err != nil {
			return z, inAnnotation(ZoneAnnotation, err)
		}
		of[key] = zone
	}
	return z, nil
}

// Of returns the zone of an address; "" if the record names none.
func (z *Zones) Of(a Addr) string {
	if z.all != "" {
		return z.all
	}
	zone, _ := z.table.find(a)
	return zone
}

// Locate adds zones to the places of endpoints. A zone that someone has written down is a hint, too: clients of the zone prefer the endpoint. One
// without a zone is for other zones.
func (n Node) Locate(byPort []PortAddrs, zones *Zones) {
	for i := range byPort {
		p, at := &byPort[i], -1
		before := p.Places
		p.Places = PlacesOf(p.Addrs, func(a Addr) Place {
			at++
			zone, place := zones.Of(a), before.At(at)
			n.SetZone(&place, zone)
			n.HintZone(&place, zone)
			return place
		})
	}
}

// BackupAnnotation names the endpoints of an Endpoints or an EndpointSlice that stand by: clients are given them only while no other endpoint
// of the service can be given to one.
const BackupAnnotation = AnnotationPrefix + "backup"

// Backups are the endpoints of a record that stand by.
type Backups struct {
	all   bool
	table hostTable[struct{}]
}

// ParseBackups reads the annotation: HOST and HOST:PORT with commas between, or true for all addresses of the record.
func ParseBackups(annotation string) (b Backups, err error) {
	if annotation == "true" {
		return Backups{all: true}, nil
	}
	b.table = newHostTable[struct{}]()
	for entry := range strings.SplitSeq(annotation, ",") {
		of, key, err := b.table.placeFor(strings.TrimSpace(entry))
		if err != nil {
			return b, inAnnotation(BackupAnnotation, fmt.Errorf("%s is no address, such as 10.1.2.3, 10.1.2.3:80 or [fd00::3]:80; true is all", Quote(entry)))
		}
		of[key] = struct{}{}
	}
	return b, nil
}

// Mark adds to the places of endpoints which of them stand by.
func (b *Backups) Mark(byPort []PortAddrs) {
	for i := range byPort {
		p, at := &byPort[i], -1
		before := p.Places
		p.Places = PlacesOf(p.Addrs, func(a Addr) Place {
			at++
			if _, named := b.table.find(a); b.all || named {
				return before.At(at) | Backup
			}
			return before.At(at)
		})
	}
}

// setNearness sets which endpoints the clients of a node are given: by the traffic policy of the ports that the service offers, and by its
// distribution. An unusable value causes a warning, and the default holds, which has all endpoints serve.
func (w *Wishes) setNearness(t *Terms) (warnings []Warning) {
	t.Local, warnings = ParseTrafficPolicy(w.TrafficPolicy)
	switch w.Distribution {
	case "PreferSameZone", "PreferClose": // the latter is its older name
		t.Distribution = PreferSameZone
	case "PreferSameNode":
		t.Distribution = PreferSameNode
	case "":
	default:
		warnings = append(warnings, Warning("unknown trafficDistribution "+Quote(w.Distribution)+" has no effect"))
	}
	switch port := w.HealthCheckNodePort; {
	case port == 0 || !t.Local:
	case port < 1 || port > 65535:
		warnings = append(warnings, Warning(fmt.Sprintf("healthCheckNodePort %d is not between 1 and 65535, and has no effect", port)))
	default:
		t.HealthCheckPort = uint16(port)
	}
	return warnings
}

// ParseTrafficPolicy reports whether a traffic policy has clients be given endpoints on the node only.
func ParseTrafficPolicy(s string) (local bool, odd []Warning) {
	if s != "" && s != "Cluster" && s != "Local" {
		odd = append(odd, Warning("unknown traffic policy "+Quote(s)+" is taken for Cluster"))
	}
	return s == "Local", odd
}
