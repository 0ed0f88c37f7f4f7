//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubeproxy/scripts/internal/try"
)

// kubernetesFiles are where "Kubernetes the Hard Way" puts its kube-proxy. The program only has to be there and to run.
var kubernetesFiles = map[string]string{
	"/usr/local/bin/kube-proxy":                   "#!/bin/sh\nexec sleep infinity\n",
	"/var/lib/kube-proxy/kubeconfig":              "kind: Config\n",
	"/var/lib/kube-proxy/kube-proxy-config.yaml":  "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\n",
	"/etc/systemd/system/kube-proxy.service":      "[Unit]\nDescription=Kubernetes Kube Proxy\n[Service]\nExecStart=/usr/local/bin/kube-proxy\nRestart=on-failure\n[Install]\nWantedBy=multi-user.target\n",
	"/var/log/kube-proxy/kube-proxy.INFO":         "I0101 00:00:00 it ran\n",
	"/run/kube-proxy/something-of-its-own.socket": "",
}

// A kubernetes is a kube-proxy of Kubernetes on the same machine.
type kubernetes struct {
	site *site
	pid  string
}

// layOutKubernetes puts its files there, and starts it.
func (s *site) layOutKubernetes() (k *kubernetes, err error) {
	defer try.Catch(&err)
	for path, content := range kubernetesFiles {
		at := s.path(path)
		try.Do(os.MkdirAll(filepath.Dir(at), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		try.Do(os.WriteFile(at, []byte(content), mode))
	}
	try.Get(s.run("systemctl", "daemon-reload"))
	try.Get(s.run("systemctl", "enable", "--now", "kube-proxy"))
	k = &kubernetes{site: s}
	k.pid = try.Get(k.property("MainPID"))
	return k, nil
}

func (k *kubernetes) property(name string) (string, error) {
	return k.site.run("systemctl", "show", "--value", "--property="+name, "kube-proxy.service")
}

// untouched reports what has become of it, if anything has.
func (k *kubernetes) untouched() (err error) {
	defer try.Catch(&err)
	for path, content := range kubernetesFiles {
		if text, err := os.ReadFile(k.site.path(path)); err != nil || string(text) != content {
			return fmt.Errorf("%s of Kubernetes is not as it was: %q, %v", path, text, err)
		}
	}
	active, enabled, pid := try.Get(k.property("ActiveState")), try.Get(k.property("UnitFileState")), try.Get(k.property("MainPID"))
	if active != "active" || enabled != "enabled" || pid != k.pid || exists(k.site.path("/usr/bin/kube-proxy")) {
		return fmt.Errorf("the unit of Kubernetes is %s and %s, its process %s was %s, or there is a /usr/bin/kube-proxy", active, enabled, pid, k.pid)
	}
	return nil
}

// isCalledKubeProxyWhereNobodyElseIs: it is an alternative for that word on a machine without one. There it takes the settings of kubeproxy, its
// name of before; and a purge leaves what it has not written itself.
func (s *site) isCalledKubeProxyWhereNobodyElseIs() (err error) {
	defer try.Catch(&err)
	try.Get(s.run("systemctl", "disable", "--now", "kube-proxy"))
	try.Do(os.Remove(s.path("/usr/local/bin/kube-proxy")))
	const before = "/etc/kube-proxy/config.yaml"
	try.Do(os.MkdirAll(s.path(filepath.Dir(before)), 0o755))
	try.Do(os.WriteFile(s.path(before), []byte("# Flags of kube-proxy.service, by their names\netcd_servers: [http://127.0.0.1:2379]\nstate_dir: \"/var/lib/kube-proxy\"\n"), 0o644))
	try.Get(s.run("dpkg", "--install", firstDeb))
	version := try.Get(s.run("kube-proxy", "-version"))
	if text := string(try.Get(os.ReadFile(s.path(settings)))); !strings.Contains(text, "state_dir: \"/var/lib/"+packageName+"\"\n") {
		return fmt.Errorf("the settings of kubeproxy became %q", text)
	}
	foreign := "/var/lib/" + packageName + "/notes"
	try.Do(os.MkdirAll(s.path(filepath.Dir(foreign)), 0o755))
	try.Do(os.WriteFile(s.path(foreign), nil, 0o644))
	try.Get(s.run("dpkg", "--purge", packageName))
	if exists(s.path("/usr/bin/kube-proxy")) || !exists(s.path(foreign)) || !exists(s.path(before)) || !exists(s.path("/var/lib/kube-proxy/kubeconfig")) {
		return errors.New("after dpkg --purge the word kube-proxy stays, or a file that the package has not written is gone")
	}
	say("without another kube-proxy the word is this program (%s), with the settings of kubeproxy; dpkg --purge left a foreign file of /var/lib/%s", version, packageName)
	return nil
}
