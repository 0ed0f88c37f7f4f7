// Package commandline reads command lines in v0.4's syntax and explains them: as help by topic, as a man page, and as completions for
// shells.
//
// A [Command] is one command line: that of the program, or that of a sub-command. Its flags belong to topics ([Command.Group]). A default
// that is derived from something else has a formula ([Command.Derive]): help shows it with its value on this machine, and the man page,
// which is the same on every machine, shows the formula alone. A [Manual] has all commands of a program, and explains them.
//
// A name takes one dash or two, and underscores or dashes join its words (normalise.go). Values are checked when they are parsed. An
// unknown name is an error that names the most similar one (suggest.go). values.go has the kinds of values, and proxyvalues.go those of
// flags that only the proxy has.
//
// [ReadFile] reads the file of -config: a YAML document whose keys are the names of flags, or a KubeProxyConfiguration of Kubernetes, whose
// fields stand for flags. It does not know which flags there are, and sets none: [Fill] does. A file has at most 256 KiB, one document, and
// each key once.
package commandline
