package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const program = `package main

import "fmt"

var version = "unset"

func main() { fmt.Println("firewall-controller", version) }
`

// TestUpdateFromRelease lays a small release out, builds the selfupdate command
// and does with them what releasecheck does with goreleaser's.
func TestUpdateFromRelease(t *testing.T) {
	work := t.TempDir()
	source := filepath.Join(work, "source")
	must(t, os.Mkdir(source, 0o755))
	must(t, os.WriteFile(filepath.Join(source, "go.mod"), []byte("module example.org/firewall-controller\n\ngo 1.26\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(source, "main.go"), []byte(program), 0o644))
	t.Setenv("GOFLAGS", "-buildvcs=false") // the temporary directory is in no repository

	ext := ""
	if runtime.GOOS == "windows" {
		ext = ".exe"
	}
	asset := "firewall-controller-" + runtime.GOOS + "-" + runtime.GOARCH + ext
	cli := filepath.Join(work, "selfupdate"+ext)
	old := filepath.Join(work, "before"+ext)
	must(t, build(t.Context(), "../..", "cmd/selfupdate", cli, "v0.0.0"))
	must(t, build(t.Context(), source, ".", old, "v1.0.0"))

	dist := filepath.Join(work, "dist")
	must(t, os.Mkdir(dist, 0o755))
	rel := release{version: "v1.1.0", files: map[string]string{}}
	add := func(name string) string {
		rel.files[name] = filepath.Join(dist, name)
		return rel.files[name]
	}
	must(t, build(t.Context(), source, ".", add(asset), rel.version))
	digest, err := digestOf(rel.files[asset])
	must(t, err)
	line := digest + "  " + asset + "\n"
	must(t, os.WriteFile(add(asset+".sha256"), []byte(line), 0o644))
	others := strings.Repeat("0", 64) + "  another-linux-amd64\n"
	must(t, os.WriteFile(add("checksums.txt"), []byte(others+line), 0o644))

	key, secret := newKey(t, work)
	rel.files[signature] = ours(t).sign(t, rel.files[sums], rel.version, secret, "")

	must(t, update{cli: cli, rel: rel, key: key, asset: asset, old: old, showing: "-v", work: work, log: t.Output()}.check(t.Context()))
}

// TestReleaseComplete lays out what goreleaser leaves and takes one thing away,
// or adds one, at a time.
func TestReleaseComplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, r release)
		want   string // in the error; "" for none
	}{
		{"as it should be", func(*testing.T, release) {}, ""},
		{"a program is missing", func(_ *testing.T, r release) { delete(r.files, "selfupdate-darwin-arm64") }, "selfupdate-darwin-arm64"},
		{"a sidecar is missing", func(_ *testing.T, r release) { delete(r.files, "selfupdate-linux-arm64.sha256") }, "selfupdate-linux-arm64.sha256"},
		{"a program is not what the checksums say", func(t *testing.T, r release) {
			must(t, os.WriteFile(r.files["firewall-controller-linux-amd64"], []byte("other"), 0o644))
		}, "checksums.txt does not list firewall-controller-linux-amd64"},
		{"not signed", func(_ *testing.T, r release) { delete(r.files, signature) }, signature},
		{"a sidecar has another name in it", func(t *testing.T, r release) {
			must(t, os.Rename(r.files["selfupdate-linux-arm64.sha256"], r.files["selfupdate-linux-amd64.sha256"]))
		}, "selfupdate-linux-amd64.sha256 holds"},
		{"more than asked for", func(_ *testing.T, r release) { r.files["selfupdate.deb"] = "x" }, "selfupdate.deb is released"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rel := release{version: "v1.1.0", files: map[string]string{}}
			dir := t.TempDir()
			write := func(name, content string) {
				rel.files[name] = filepath.Join(dir, name)
				must(t, os.WriteFile(rel.files[name], []byte(content), 0o644))
			}
			var list strings.Builder
			for _, name := range released {
				write(name, "the program "+name)
				digest, err := digestOf(rel.files[name])
				must(t, err)
				fmt.Fprintf(&list, "%s  %s\n", digest, name)
				write(name+".sha256", fmt.Sprintf("%s  %s\n", digest, name))
			}
			write(sums, list.String())
			write(signature, "its signature")
			tt.damage(t, rel)
			err := rel.complete()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
