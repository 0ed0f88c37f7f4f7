package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// provenance writes how the files were built, as an in-toto statement with SLSA's provenance: the commit, the toolchain and the modules, by their
// checksums, and each file so far with its own. It has no time and no name of a machine: who builds the commit again gets the same.
func (r *release) provenance(arches []string, toolchain string, sums map[string]string) error {
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range sortedKeys(sums) {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	parameters, err := structpb.NewStruct(map[string]any{"ref": "refs/tags/" + r.describe, "architectures": strings.Join(arches, ",")})
	if err != nil {
		return err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:          home + "/docs/releases.md#how-a-release-is-made",
			ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Name: "source", Digest: map[string]string{"gitCommit": r.commit}, Annotations: &structpb.Struct{Fields: map[string]*structpb.Value{"tag": structpb.NewStringValue(r.describe)}}},
				{Name: "toolchain", Uri: "pkg:golang/" + stdlib + "@" + strings.TrimPrefix(toolchain, "go")},
			},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: home + "/make-release"}},
	}
	checksums, err := r.moduleSums()
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if m.path == stdlib {
			continue
		}
		digest, err := dirHash(checksums[m.path+" "+m.version])
		if err != nil {
			return fmt.Errorf("go.sum, %s %s: %w", m.path, m.version, err)
		}
		predicate.BuildDefinition.ResolvedDependencies = append(predicate.BuildDefinition.ResolvedDependencies,
			&intoto.ResourceDescriptor{Uri: "pkg:golang/" + m.path + "@" + m.version, Digest: map[string]string{"dirHash": digest}})
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return err
	}
	statement.Predicate = new(structpb.Struct)
	if err := protojson.Unmarshal(text, statement.Predicate); err != nil {
		return err
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	if text, err = protojson.Marshal(statement); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", " "); err != nil { // protojson puts spaces where it likes: they differ from build to build
		return err
	}
	b.WriteByte('\n')
	return os.WriteFile(r.name("%s-%s.intoto.json", packageName, r.version), b.Bytes(), 0o644)
}

// moduleSums returns the checksums of go.sum, by path and version.
func (r *release) moduleSums() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "go.sum"))
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			sums[f[0]+" "+f[1]] = f[2]
		}
	}
	return sums, nil
}

// dirHash returns a checksum of go.sum as in-toto writes it: without its prefix, and in hexadecimal digits.
func dirHash(sum string) (string, error) {
	text, found := strings.CutPrefix(sum, "h1:")
	digest, err := base64.StdEncoding.DecodeString(text)
	if !found || err != nil || len(digest) != sha256.Size {
		return "", fmt.Errorf("%q is no checksum of a module", sum)
	}
	return hex.EncodeToString(digest), nil
}
