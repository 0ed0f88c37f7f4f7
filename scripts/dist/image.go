package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs in the image: not root, and no user of the machine.
const user = 65532

// image writes an OCI image layout with an image for each architecture, and each image as a tar for docker load.
func (r *release) image(arches []string, programs map[string]*program) error {
	tag := packageName + ":" + strings.NewReplacer("+", "-", "~", "-").Replace(r.version)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range arches {
		img, err := r.imageFor(programs[arch])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		ref, err := name.NewTag(tag)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(r.name("%s-%s-linux-%s.docker.tar", packageName, r.version, arch), ref, img); err != nil {
			return err
		}
	}
	path, err := layout.Write(r.name("%s-%s.oci", packageName, r.version), empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
}

// imageFor makes the image of an architecture: the program, its license, and two directories that its user may write to, for volumes.
func (r *release) imageFor(p *program) (v1.Image, error) {
	license, err := os.ReadFile(r.root + "/LICENSE")
	if err != nil {
		return nil, err
	}
	text, err := tarOf("", []file{
		{path: "run/", mode: 0o755}, {path: "run/" + packageName + "/", mode: 0o700, owner: user},
		{path: "usr/", mode: 0o755}, {path: "usr/bin/", mode: 0o755}, {path: "usr/bin/" + packageName, mode: 0o755, content: p.content},
		{path: "usr/share/", mode: 0o755}, {path: "usr/share/licenses/", mode: 0o755}, {path: "usr/share/licenses/" + packageName + "/", mode: 0o755},
		{path: "usr/share/licenses/" + packageName + "/LICENSE", mode: 0o644, content: license},
		p.notices("usr/share/licenses/" + packageName + "/"),
		{path: "var/", mode: 0o755}, {path: "var/lib/", mode: 0o755}, {path: "var/lib/" + packageName + "/", mode: 0o700, owner: user},
	}, r.when)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "kube-proxy-dist"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, r.config(p.arch, img))
}

func (r *release) config(arch string, img v1.Image) *v1.ConfigFile {
	made, err := img.ConfigFile()
	if err != nil { // it was made by Append
		panic(err)
	}
	c := made.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: r.when}
	c.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/" + packageName},
		Env:        []string{"PATH=/usr/bin"},
		User:       fmt.Sprintf("%d:%[1]d", user),
		Labels: map[string]string{
			"org.opencontainers.image.title":       packageName,
			"org.opencontainers.image.description": summary,
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.revision":    r.commit,
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return c
}
