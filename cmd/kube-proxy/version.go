package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"kubeproxy/cmd/internal/node"
)

// The linker stamps these:
//
//	go build -ldflags "-X main.gitVersion=v1.2.3 -X main.gitCommit=… -X main.gitTreeState=clean"
//
// What it leaves empty is taken from what the go command recorded, if it built from a repository.
var (
	gitVersion   string
	gitCommit    string
	gitTreeState string
)

// A buildInfo says which program this is.
type buildInfo struct {
	version   string
	commit    string
	treeState string
}

func readBuildInfo() buildInfo {
	recorded, ok := debug.ReadBuildInfo()
	if !ok {
		recorded = new(debug.BuildInfo)
	}
	settings := make(map[string]string)
	for _, s := range recorded.Settings {
		settings[s.Key] = s.Value
	}
	state := map[string]string{"true": "dirty", "false": "clean"}[settings["vcs.modified"]]
	return buildInfo{
		version:   cmp.Or(gitVersion, recorded.Main.Version, "(devel)"),
		commit:    cmp.Or(gitCommit, settings["vcs.revision"]),
		treeState: cmp.Or(gitTreeState, state, "not a git tree"), // v0.4's words
	}
}

// String is what -version prints: v0.4's "Kubernetes v0.4.4", with our name.
func (b buildInfo) String() string { return "kube-proxy " + b.version }

// raw is what -version=raw prints: v0.4's five fields in their old form, and two more.
func (b buildInfo) raw() string {
	var major, minor string
	if numbers, ok := strings.CutPrefix(b.version, "v"); ok {
		major, minor, _ = strings.Cut(numbers, ".")
	}
	return fmt.Sprintf("version.Info{Major:%q, Minor:%q, GitVersion:%q, GitCommit:%q, GitTreeState:%q, GoVersion:%q, Platform:%q}",
		major, minor, b.version, b.commit, b.treeState, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
}

// document is what operators see at /version.
func (b buildInfo) document() node.Version {
	return node.Version{Version: b.version, Revision: b.commit, TreeState: b.treeState,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}
