package registry

// AnnotationPrefix is that of our own annotations. Nobody else's begin with it.
const AnnotationPrefix = "kube-proxy/"

// RegistrarAnnotation says which run of kube-proxy register has written an EndpointSlice. It means nothing to proxies.
const RegistrarAnnotation = AnnotationPrefix + "registrar"

// ServiceAnnotations are the annotations of a Service that set terms, those with our prefix before their other names.
var ServiceAnnotations = func() []string {
	all := []string{sourceRangesAnnotation, ListenAnnotation}
	for i := range terms {
		if all = append(all, AnnotationPrefix+terms[i].name); terms[i].alias != "" {
			all = append(all, terms[i].alias)
		}
	}
	return all
}()
