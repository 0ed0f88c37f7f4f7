// Package configfile reads the file of -config: a YAML document whose keys are the names of flags, or a KubeProxyConfiguration of
// Kubernetes, whose fields stand for flags.
//
// [Read] returns the values of flags. It does not know which flags there are, and sets none: package commandline does
// ([commandline.Fill]). A file has at most 256 KiB, one document, and each key once.
package configfile
