package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// bill writes the bill of materials of a program, in SPDX 2.3: the modules that the linker has noted in it, with the licenses that their files
// say, and Go's own library.
func (r *release) bill(p *program, path string) error {
	built, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	if err := sameModules(built, p.modules); err != nil {
		return err
	}
	licenses := make(map[string]string, len(p.modules))
	for _, m := range p.modules {
		licenses[m.path] = m.license
	}
	name := r.called(p.target)
	sum := sha256.Sum256(p.content)
	root := &spdx.Package{PackageName: p.name, PackageSPDXIdentifier: common.ElementID("Package-" + p.name), PackageVersion: r.version, PrimaryPackagePurpose: "APPLICATION",
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
		PackageSourceInfo:         "git commit " + cmp.Or(r.commit, "unknown"),
		PackageExternalReferences: []*spdx.PackageExternalReference{purl(productOf(p.name, r.version))},
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sum)}}}
	doc := &spdx.Document{SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", name, sum[:16]),
		CreationInfo:      &spdx.CreationInfo{Creators: []common.Creator{{CreatorType: "Tool", Creator: "kube-proxy-dist"}}, Created: r.when.Format(time.RFC3339)},
		Packages:          []*spdx.Package{root},
		Relationships:     []*spdx.Relationship{relationship("DOCUMENT", "DESCRIBES", root.PackageSPDXIdentifier)}}
	modules := append([]*debug.Module{{Path: stdlib, Version: strings.TrimPrefix(built.GoVersion, "go")}}, built.Deps...)
	for _, m := range modules {
		if m.Replace != nil {
			return fmt.Errorf("module %s is replaced, which this list cannot say", m.Path)
		}
		p := materialOf(m, licenses[m.Path])
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relationship(root.PackageSPDXIdentifier, "CONTAINS", p.PackageSPDXIdentifier))
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		return err
	}
	out, err := os.Create(r.name("%s.spdx.json", name))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := json.Write(doc, out, json.Indent(" ")); err != nil {
		return err
	}
	return out.Close()
}

// materialOf describes a module. Its checksum is go.sum's, which is none of SPDX's kinds: it is a comment.
func materialOf(m *debug.Module, license string) *spdx.Package {
	id := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '.' {
			return r
		}
		return '-'
	}, m.Path+"-"+m.Version)
	p := &spdx.Package{PackageName: m.Path, PackageSPDXIdentifier: common.ElementID("Package-" + id), PackageVersion: m.Version, PrimaryPackagePurpose: "LIBRARY",
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: license, PackageLicenseDeclared: license, PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{purl("pkg:golang/" + m.Path + "@" + m.Version)}}
	if m.Sum != "" {
		p.PackageComment = "go.sum: " + m.Sum
	}
	return p
}

// productOf is the name of a program of a version in bills, VEX documents and provenance.
func productOf(name, version string) string {
	return "pkg:generic/" + name + "@" + url.QueryEscape(version)
}

func purl(locator string) *spdx.PackageExternalReference {
	return &spdx.PackageExternalReference{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: locator}
}

func relationship(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, Relationship: kind, RefB: common.DocElementID{ElementRefID: to}}
}
