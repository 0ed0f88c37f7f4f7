package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

//go:embed package
var scripts embed.FS

// packageName is the name of everything that a package installs: program, unit and directories. Those called kube-proxy are Kubernetes' own.
const packageName = "kube-proxy-classic"

const (
	maintainer  = "The kube-proxy authors <kube-proxy@kube-proxy.invalid>" // until there is an address
	summary     = "TCP and UDP load balancer that runs on every node"
	description = summary + `
It reads services and their endpoints from etcd, a Kubernetes API server or
files, listens on the port of each service, and connects each client to one of
the endpoints. It is Kubernetes v0.4's kube-proxy, built again.`
)

// packages writes the deb and the rpm. Their files pass through the directory stage.
func (r *release) packages(p *program, stage string) error {
	for _, kind := range []string{"deb", "rpm"} {
		if err := r.pack(kind, p, filepath.Join(stage, kind)); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (r *release) pack(kind string, p *program, stage string) error {
	files, err := r.installed(p, "/usr/share/doc/"+packageName)
	if err != nil {
		return err
	}
	own, err := r.ownFiles(kind)
	if err != nil {
		return err
	}
	var contents nfpmfiles.Contents
	for _, f := range append(files, own...) {
		source := filepath.Join(stage, f.path)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, f.content, f.mode); err != nil {
			return err
		}
		c := &nfpmfiles.Content{Source: source, Destination: f.path, FileInfo: &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.when}}
		if f.config {
			c.Type = nfpmfiles.TypeConfigNoReplace
		}
		contents = append(contents, c)
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: packageName, Arch: p.arch, Platform: "linux", Version: r.version, VersionSchema: "none",
		Section: "net", Priority: "optional", Maintainer: maintainer, Description: description,
		MTime: r.when, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents:   contents,
			Recommends: []string{"logrotate"},
			RPM:        nfpm.RPM{Summary: summary, Group: "System Environment/Daemons", BuildHost: "localhost", Packager: maintainer, Compression: "xz"},
			Deb:        nfpm.Deb{Compression: "xz"},
		},
	})
	if kind == "rpm" {
		info.Release, info.License = "1", "Apache-2.0"
	}
	for name, at := range map[string]*string{"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove} {
		content, err := scripts.ReadFile("package/" + name)
		if err != nil {
			return err
		}
		*at = filepath.Join(stage, name)
		if err := os.WriteFile(*at, content, 0o755); err != nil {
			return err
		}
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	out, err := os.Create(r.name("%s", packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := packager.Package(info, out); err != nil {
		return err
	}
	return out.Close()
}

// ownFiles returns the files that only one kind of package has.
func (r *release) ownFiles(kind string) ([]file, error) {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	if kind == "rpm" {
		return []file{
			{path: "/usr/share/licenses/" + packageName + "/LICENSE", mode: 0o644, content: license},
			{path: "/usr/share/zsh/site-functions/_" + packageName, mode: 0o644, content: r.manual.zsh},
		}, nil
	}
	rights, err := scripts.ReadFile("package/copyright") // Debian has the text of the license already
	if err != nil {
		return nil, err
	}
	overrides, err := scripts.ReadFile("package/lintian-overrides")
	if err != nil {
		return nil, err
	}
	changes, err := compressed(fmt.Appendf(nil, "%s (%s) unstable; urgency=medium\n\n  * CHANGELOG.md lists what users notice.\n\n -- %s  %s\n",
		packageName, r.version, maintainer, r.when.Format(time.RFC1123Z)))
	if err != nil {
		return nil, err
	}
	confined, err := os.ReadFile(filepath.Join(r.root, "docs", packageName+".apparmor"))
	if err != nil {
		return nil, err
	}
	doc := "/usr/share/doc/" + packageName
	return []file{
		{path: "/etc/apparmor.d/" + packageName, mode: 0o644, content: confined, config: true},
		{path: doc + "/copyright", mode: 0o644, content: rights},
		{path: doc + "/changelog.gz", mode: 0o644, content: changes},
		{path: "/usr/share/lintian/overrides/" + packageName, mode: 0o644, content: overrides},
		{path: "/usr/share/zsh/vendor-completions/_" + packageName, mode: 0o644, content: r.manual.zsh},
	}, nil
}
