package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/openvex/go-vex/pkg/vex"
)

// Statements are what is said of vulnerabilities of what the programs are linked with: those of an OpenVEX document, whose products have no version. A
// release writes its own version to them.
//
//go:embed vex.json
var statementsFile []byte

// home is the project's name for itself in documents that want an address, until there is one.
const home = "https://kube-proxy.invalid"

// readStatements checks the statements: each names a vulnerability and the programs that it is about, and is complete for its status.
func readStatements(text []byte) ([]vex.Statement, error) {
	var all []vex.Statement
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("vex.json: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("vex.json: no statement, and OpenVEX wants one at least")
	}
	said := make(map[string]bool) // of a vulnerability and a product
	for i, s := range all {
		name := string(s.Vulnerability.Name)
		if name == "" {
			return nil, fmt.Errorf("vex.json: statement %d names no vulnerability", i+1)
		}
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("vex.json: %s: %w", name, err)
		}
		if s.Justification != "" && s.ImpactStatement != "" {
			return nil, fmt.Errorf("vex.json: %s has both a justification and an impact statement, and OpenVEX's schema allows one", name)
		}
		if len(s.Products) == 0 {
			return nil, fmt.Errorf("vex.json: %s names no product", name)
		}
		for _, p := range s.Products {
			if !slices.Contains([]string{productID(packageName), productID(schoolName)}, p.ID) {
				return nil, fmt.Errorf("vex.json: %s names the product %q, which is not built here", name, p.ID)
			}
			if said[name+" "+p.ID] {
				return nil, fmt.Errorf("vex.json: two statements are about %s and %s", name, p.ID)
			}
			said[name+" "+p.ID] = true
		}
	}
	return all, nil
}

// productID is the name of a program of no version.
func productID(name string) string { return "pkg:generic/" + name }

// vex writes the VEX document of the release: the statements, of its version, at the time of its commit.
func (r *release) vex() error {
	all, err := readStatements(statementsFile)
	if err != nil {
		return err
	}
	doc := vex.VEX{
		Metadata: vex.Metadata{Context: vex.ContextLocator(), ID: home + "/vex/" + packageName + "-" + r.version, Author: maintainer, Timestamp: &r.when, Version: 1},
	}
	for _, s := range all {
		s.Products = slices.Clone(s.Products)
		for i, p := range s.Products {
			s.Products[i].ID = productOf(p.ID[len(productID("")):], r.version)
		}
		doc.Statements = append(doc.Statements, s)
	}
	var b bytes.Buffer
	if err := doc.ToJSON(&b); err != nil {
		return err
	}
	return os.WriteFile(r.name("%s-%s.openvex.json", packageName, r.version), b.Bytes(), 0o644)
}
