package main

import (
	_ "embed"
	"io"

	"kubeproxy/cmd/internal/commandline"
)

// words are the programs that the first argument chooses, in place of the proxy.
var words = map[string]func(args []string, stdout, stderr io.Writer) (status int){
	"check":    runCheck,
	"register": runRegister,
	"get":      anew(newGet),
	"put":      anew(newPut),
	"rm":       anew(newRemove),
	"cleanup":  runCleanup,
}

// anew runs a word with options of its own.
func anew(make func() *recordOptions) func(args []string, stdout, stderr io.Writer) (status int) {
	return func(args []string, stdout, stderr io.Writer) int { return make().execute(args, stdout, stderr) }
}

// wordOf returns the program that a word chooses; nil if there is none.
func wordOf(word string) func(args []string, stdout, stderr io.Writer) (status int) {
	for _, v := range controlVerbs() {
		if v.Word == word {
			return v.execute
		}
	}
	return words[word]
}

// Sections of the man page that do not follow from the flags.
//
//go:embed manual.mdoc
var sections string

// manual explains the program and its sub-commands.
func manual() *commandline.Manual {
	commands := []*commandline.Command{defaults().commandLine(), newCheck().commandLine(), newRegister().commandLine(),
		newGet().commandLine(), newPut().commandLine(), newRemove().commandLine()}
	for _, v := range controlVerbs() {
		commands = append(commands, v.commandLine())
	}
	return &commandline.Manual{
		Commands: append(commands, cleanupCommand(new(string))),
		Topics: []commandline.Topic{
			{Name: topicRegistry, Title: "where services are read from"},
			{Name: topicListening, Title: "addresses, and the engine that moves the bytes"},
			{Name: topicTimeouts, Title: "choosing endpoints, timeouts, and the end of connections"},
			{Name: topicLimits, Title: "how much is open at one time"},
			{Name: topicSecurity, Title: "certificates, passwords, and what services may claim"},
			{Name: topicOperators, Title: "health, metrics, pages, and the connection log"},
			{Name: topicState, Title: "what survives a restart, and upgrades"},
			{Name: topicLogging, Title: "log lines, and how many there are"},
			{Name: topicInstance, Title: "what kube-proxy register writes"},
			{Name: commandline.General, Title: "the file of -config, help, the version, and the output of commands"},
			{Name: topicObsolete, Title: "flags of v0.4 and of its log that have no effect"},
		},
		Common:   []string{"config", "etcd_servers", "registry_dir", "master", "bind_address", "allowed_ports", "metrics_bind_address", "connection_log", "takeover", "v"},
		Summary:  "connects clients to the endpoints of services",
		Date:     "November 23, 2026",
		Sections: sections,
	}
}

// runHelp is the program when its first argument is "help".
func runHelp(args []string, stdout, stderr io.Writer) int {
	m := manual()
	if err := m.Help(stdout, args); err != nil {
		m.Complain(stderr, err)
		return exitUsage
	}
	return exitDone
}
