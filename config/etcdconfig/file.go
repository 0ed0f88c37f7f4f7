package etcdconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A configFile is the file that v0.4's -etcd_config names, as its etcd client wrote and read it.
// Names of fields match in any case, and unknown ones are ignored.
type configFile struct {
	Config struct {
		CertFile    string   `json:"certFile"`
		KeyFile     string   `json:"keyFile"`
		CACertFiles []string `json:"caCertFiles"`
		Timeout     int64    `json:"timeout"` // nanoseconds, for dialling only
		Consistency string   `json:"consistency"`
	} `json:"config"`
	Cluster *struct {
		Leader   string   `json:"leader"`
		Machines []string `json:"machines"`
	} `json:"cluster"`
}

// LoadConfigFile reads an etcd config file of v0.4. The warnings say what it asks for that will not be
// done as it says, one line each. An error is one line that names the file and the reason.
func LoadConfigFile(path string) (Config, []string, error) {
	data, err := remote.Text{Path: path}.Read()
	if err != nil {
		return Config{}, nil, fmt.Errorf("etcd config file %w", err)
	}
	cfg, warnings, err := parseConfigFile(data)
	if err != nil {
		return Config{}, nil, fmt.Errorf("etcd config file %s: %w", registry.Quote(path), err)
	}
	return cfg, warnings, nil
}

// parseConfigFile maps the old file to a [Config]. It opens the certificates that the file names.
func parseConfigFile(data []byte) (Config, []string, error) {
	var file configFile
	if err := json.Unmarshal(data, &file); err != nil {
		if len(data) == 0 {
			return Config{}, nil, errors.New("the file is empty")
		}
		return Config{}, nil, fmt.Errorf("not the JSON of an etcd config: %s", config.OneLine(err.Error()))
	}
	if file.Cluster == nil {
		return Config{}, nil, errors.New(`no "cluster"`) // D6
	}
	var cfg Config
	var warnings []string

	// D7: the leader was where v0.4 went first. Today's client finds it, so here it is one more machine.
	cfg.Endpoints = slices.Clone(file.Cluster.Machines)
	if leader := file.Cluster.Leader; leader != "" && !slices.Contains(cfg.Endpoints, leader) {
		cfg.Endpoints = append(cfg.Endpoints, leader)
	}
	if len(cfg.Endpoints) == 0 {
		return Config{}, nil, errors.New(`no "machines" and no "leader" in "cluster"`)
	}
	if file.Config.Timeout < 0 {
		return Config{}, nil, fmt.Errorf(`negative "timeout" %d`, file.Config.Timeout)
	}
	cfg.DialTimeout = time.Duration(file.Config.Timeout)

	switch file.Config.Consistency {
	case "", "STRONG":
	case "WEAK":
		cfg.Weak = true
	default:
		warnings = append(warnings, fmt.Sprintf("unknown consistency %s in etcd config: taken as STRONG", registry.Quote(file.Config.Consistency)))
	}

	var err error
	files := TLSFiles{CA: file.Config.CACertFiles, Cert: file.Config.CertFile, Key: file.Config.KeyFile}
	cfg.RootCAs = files.Roots()
	cfg.TLS, err = files.Config()
	if err != nil {
		return Config{}, nil, err
	}
	checked, err := cfg.Complete()
	if err != nil {
		return Config{}, nil, err
	}
	if IsHTTPS(checked.Endpoints[0]) && len(file.Config.CACertFiles) == 0 {
		warnings = append(warnings, "no caCertFiles in etcd config: unless a flag says otherwise, the server is verified with the roots of the system (v0.4 did not verify it)") // D4
	}
	return cfg, warnings, nil
}

// ReadPassword reads a password from a file, without the end of line that editors leave there.
func ReadPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return password, nil
}
