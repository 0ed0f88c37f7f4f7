package apisource

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// kubeconfig is what is read of a kubeconfig file. What would change how the server is reached or who we are, and is not
// supported, is refused: to leave it out would be to ask another server, or as another user.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster kubeCluster
	}
	Users []struct {
		Name string
		User kubeUser
	}

	dir string // that paths in the file begin at
}

type kubeCluster struct {
	Server        string
	CAFile        string `json:"certificate-authority"`
	CAData        []byte `json:"certificate-authority-data"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	TLSServerName string `json:"tls-server-name"`
	ProxyURL      string `json:"proxy-url"`
}

type kubeUser struct {
	CertFile     string `json:"client-certificate"`
	CertData     []byte `json:"client-certificate-data"`
	KeyFile      string `json:"client-key"`
	KeyData      []byte `json:"client-key-data"`
	Token        string
	TokenFile    string
	Username     string
	As           string
	Exec         json.RawMessage
	AuthProvider json.RawMessage `json:"auth-provider"`
}

// LoadKubeconfig reads the server and the credentials of the current context of a kubeconfig file. Its errors repeat names from the file
// and nothing else.
func LoadKubeconfig(path string) (Config, error) {
	text, err := remote.Text{Path: path}.Read()
	if err != nil {
		return Config{}, fmt.Errorf("kubeconfig %w", err)
	}
	k := kubeconfig{dir: filepath.Dir(path)}
	if yaml.Unmarshal(text, &k) != nil { // whose words repeat the text, secrets and all
		return Config{}, fmt.Errorf("kubeconfig %s is none: no YAML or JSON of that form", registry.Quote(path))
	}
	var cfg Config
	if err := k.read(&cfg); err != nil {
		return Config{}, fmt.Errorf("kubeconfig %s: %w", registry.Quote(path), err)
	}
	return cfg, nil
}

// read reads the current context.
func (k *kubeconfig) read(cfg *Config) error {
	for _, c := range k.Contexts {
		if c.Name == k.CurrentContext && c.Name != "" {
			return cmp.Or(k.cluster(cfg, c.Context.Cluster), k.user(cfg, c.Context.User))
		}
	}
	if k.CurrentContext == "" {
		return errors.New("it has no current-context")
	}
	return fmt.Errorf("it has no context %s, which is the current one", registry.Quote(k.CurrentContext))
}

func (k *kubeconfig) cluster(cfg *Config, name string) error {
	for _, c := range k.Clusters {
		switch {
		case c.Name != name:
			continue
		case c.Cluster.ProxyURL != "":
			return fmt.Errorf("cluster %s has a proxy-url, which is not supported", registry.Quote(name))
		case c.Cluster.Server == "":
			return fmt.Errorf("cluster %s has no server", registry.Quote(name))
		}
		cfg.Server, cfg.Insecure, cfg.ServerName = c.Cluster.Server, c.Cluster.Insecure, c.Cluster.TLSServerName
		cfg.CA = k.text(c.Cluster.CAFile, c.Cluster.CAData)
		return nil
	}
	return fmt.Errorf("it has no cluster %s, which is that of the current context", registry.Quote(name))
}

func (k *kubeconfig) user(cfg *Config, name string) error {
	if name == "" {
		return nil // anonymous
	}
	for _, u := range k.Users {
		if u.Name != name {
			continue
		}
		if what := u.User.unsupported(); what != "" {
			return fmt.Errorf("user %s has %s, which is not supported: use a token, a tokenFile or a client certificate", registry.Quote(name), what)
		}
		cfg.Cert, cfg.Key = k.text(u.User.CertFile, u.User.CertData), k.text(u.User.KeyFile, u.User.KeyData)
		if cfg.Token = k.text(u.User.TokenFile, nil); cfg.Token.IsZero() { // the file wins, as with kubectl
			cfg.Token.Data = []byte(u.User.Token)
		}
		return nil
	}
	return fmt.Errorf("it has no user %s, which is that of the current context", registry.Quote(name))
}

// unsupported names a way to log in that is not supported, if the user has one.
func (u *kubeUser) unsupported() string {
	switch {
	case u.Exec != nil:
		return "exec"
	case u.AuthProvider != nil:
		return "an auth-provider"
	case u.Username != "":
		return "username and password"
	case u.As != "":
		return "impersonation (as)"
	}
	return ""
}

// text is a file, or data, which win as with kubectl.
func (k *kubeconfig) text(file string, data []byte) remote.Text {
	if len(data) > 0 || file == "" || filepath.IsAbs(file) {
		if len(data) > 0 {
			file = ""
		}
		return remote.Text{Path: file, Data: data}
	}
	return remote.Text{Path: filepath.Join(k.dir, file)}
}

// Where a pod finds the credentials of its service account.
const (
	podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	podCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// InPod returns the server and the credentials that every pod has: the address in its environment, and the mounted service
// account.
func InPod() (Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Config{}, errors.New("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
	}
	return Config{
		Server:      "https://" + net.JoinHostPort(host, port),
		Credentials: Credentials{CA: remote.Text{Path: podCA}, Token: remote.Text{Path: podToken}},
	}, nil
}
