package spelling

import (
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
)

// known has the annotations that a kind of record may have, and those that only another kind may have.
var known = map[registry.Kind]struct{ own, others []string }{
	registry.KindService:       {registry.ServiceAnnotations, []string{registry.WeightAnnotation, registry.ZoneAnnotation, registry.BackupAnnotation, names.Annotation, registry.RegistrarAnnotation}},
	registry.KindEndpoints:     {[]string{registry.WeightAnnotation, registry.ZoneAnnotation, registry.BackupAnnotation, names.Annotation}, append(slices.Clip(registry.ServiceAnnotations), registry.RegistrarAnnotation)},
	registry.KindEndpointSlice: {[]string{registry.WeightAnnotation, registry.ZoneAnnotation, registry.BackupAnnotation, names.Annotation, registry.RegistrarAnnotation}, registry.ServiceAnnotations},
}

// Annotations are those of one record that count, and what is wrong with the others. A record may have any number of annotations of other
// programs, which are not kept.
//
// An unknown name with our own prefix is an error: it is a misspelt one, or one of a newer release, and to ignore what limits a service would
// open it. A name that resembles one that counts, or that counts in another kind of record, is a warning: it may be another program's.
type Annotations struct {
	Values   map[string]string // those that count, by their names; nil for none
	Warnings []registry.Warning
	Err      error // about the first name that is wrong

	judged int
}

// maxJudged is how many names without an effect are compared with those that have one, in one record.
const maxJudged = 64

// Counts reports whether the value of an annotation counts in a kind of record. If not, it judges the name.
func (a *Annotations) Counts(kind registry.Kind, name []byte) bool {
	names := known[kind]
	if slices.ContainsFunc(names.own, func(one string) bool { return one == string(name) }) {
		return true
	}
	ours := len(name) >= len(registry.AnnotationPrefix) && strings.EqualFold(string(name[:len(registry.AnnotationPrefix)]), registry.AnnotationPrefix)
	if a.judged++; ours && a.Err != nil || !ours && a.judged > maxJudged { // one error refuses the record
		return false
	}
	text := ""
	switch meant := resembling(string(name), names.own); {
	case slices.Contains(names.others, string(name)):
		text = " has no effect in " + kind.String() + ": it counts in " + placeOf(string(name))
	case meant != "":
		text = " has no effect: did you mean " + meant + "?"
	case resembling(string(name), names.others) != "":
		text = " has no effect: " + resembling(string(name), names.others) + ", which it resembles, counts in " + placeOf(resembling(string(name), names.others))
	case ours:
		text = " is unknown: this release has " + enumerate(ourOwn(names.own))
	}
	switch {
	case text == "":
	case !ours:
		a.Warnings = append(a.Warnings, registry.Warning("annotation "+registry.QuoteUnlessPlain(string(name))+text))
	case a.Err == nil:
		a.Err = fmt.Errorf("annotation %s%s", registry.QuoteUnlessPlain(string(name)), text)
	}
	return false
}

// Set keeps the value of an annotation that counts.
func (a *Annotations) Set(name, value string) {
	if a.Values == nil {
		a.Values = make(map[string]string)
	}
	a.Values[name] = value
}

// placeOf says in which records an annotation counts.
func placeOf(name string) string {
	switch name {
	case registry.WeightAnnotation, registry.ZoneAnnotation, registry.BackupAnnotation, names.Annotation:
		return "Endpoints and EndpointSlice"
	case registry.RegistrarAnnotation:
		return "EndpointSlice"
	}
	return "Service"
}

// ourOwn picks the annotations with our prefix.
func ourOwn(names []string) (all []string) {
	for _, name := range names {
		if strings.HasPrefix(name, registry.AnnotationPrefix) {
			all = append(all, name)
		}
	}
	return all
}

// enumerate lists two items or more.
func enumerate(items []string) string {
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " and " + items[last]
}

// longest is how many bytes a name has at most that is compared: any that Kubernetes accepts is shorter.
const longest = 400

// How many letters a name may differ by from one that it is to resemble: in the part after the slash, and in the domain.
const (
	maxLocalDistance  = 2
	maxDomainDistance = 5 // as between service.kubernetes.io and service.beta.kubernetes.io
)

// resembling returns the annotation that a name was most likely meant to be; "" if it resembles none.
func resembling(name string, annotations []string) (best string) {
	domain, local, ok := strings.Cut(strings.ToLower(name), "/")
	least := maxLocalDistance + maxDomainDistance + 1
	if !ok || len(name) > longest {
		return ""
	}
	for _, candidate := range annotations {
		theirs, rest, _ := strings.Cut(candidate, "/")
		l := Distance(local, rest, maxLocalDistance+1)
		if l > maxLocalDistance || l > 0 && theirs != domain && len(rest) < 10 { // a short word in another domain is another word
			continue
		}
		if d := Distance(domain, theirs, maxDomainDistance+1); d <= maxDomainDistance && l+d < least {
			best, least = candidate, l+d
		}
	}
	return best
}
