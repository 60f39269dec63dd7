package selfreconcile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/metal-stack/selfreconcile"

// edges is who may import whom. A package that is not in the table fails the
// test: add it together with the reason for each import.
var edges = map[string]struct {
	own     []string // packages of this module, below its path
	modules []string // other modules; the standard library always may be imported
	windows []string // other modules on Windows only
}{
	".":        {},
	"checksum": {},
	"selfupdate": {
		own:     []string{"checksum", "internal/shell"},
		modules: []string{"golang.org/x/sys"},
		// Its commit: rename the running .exe aside, hide it. It drags net/http in.
		windows: []string{"github.com/minio/selfupdate"},
	},
	"signature": {
		own:     []string{"checksum", "selfupdate"},
		modules: []string{"aead.dev/minisign"},
	},
	"archive": {
		own:     []string{"selfupdate"},
		modules: []string{"github.com/klauspost/compress"}, // zstd, which the standard library has not
	},
	"internal/shell":  {},
	"internal/corpus": {}, // inputs for the fuzz targets: tests only
	"internal/fetch": {
		own:     []string{"checksum", "selfupdate"},
		modules: []string{"github.com/hashicorp/go-retryablehttp"},
	},
	"source/http": {
		own: []string{"checksum", "selfupdate", "internal/fetch"},
	},
	"source/github": {
		own:     []string{"checksum", "selfupdate", "internal/fetch"},
		modules: []string{"github.com/google/go-github/v56", "golang.org/x/mod"},
	},
	"source/sourcetest": {
		own: []string{"checksum", "selfupdate"},
	},
	"cmd/internal/fuzzkeep": {own: []string{"internal/corpus"}},
	"cmd/internal/operate": {
		own: []string{"checksum", "selfupdate"},
	},
	"cmd/selfupdate": {
		own:     []string{"cmd/internal/operate", "internal/shell", "archive", "checksum", "selfupdate", "signature", "source/http", "source/github"},
		modules: []string{"golang.org/x/term"}, // whether somebody watches the progress
	},
	"cmd/selfupdate-guard": { // runs before every start of a service: small, and up in milliseconds
		own: []string{"cmd/internal/operate", "internal/shell", "checksum", "selfupdate"},
	},
	"systemd":          {}, // tests of the units only
	"internal/hostile": {}, // tests only
}

// neverReached is what a package must not link, however indirectly. The key
// "..." stands for every package of the module.
var neverReached = map[string]struct {
	packages []string // an import path, or a prefix of one that ends in "/"
	windows  bool     // whether it holds on Windows too
}{
	// Linking net/http alone costs a process 1.25 ms at its start and 2.9 MiB.
	"selfupdate": {packages: []string{"net", "net/http", "crypto/tls"}},
	"checksum":   {packages: []string{"net", "net/http", "os/exec"}, windows: true},
	// It has milliseconds before every start of a service.
	"cmd/selfupdate-guard": {packages: []string{"net", "net/http", "crypto/tls"}},
	"archive":              {packages: []string{"net/http", "crypto/tls"}},
	"signature":            {packages: []string{"net/http", "crypto/tls"}},
	"...":                  {packages: foreign, windows: true},
}

// foreign is what only an example may import: whoever imports this module must
// not get a cluster's client, a command-line framework or a bus with it.
var foreign = []string{
	"k8s.io/", "sigs.k8s.io/",
	"github.com/spf13/",
	"github.com/coreos/go-systemd/", "github.com/godbus/",
}

// pkg is what "go list -json" says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

func TestImportEdges(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			graph := list(t, goos)
			require.Contains(t, graph, module+"/selfupdate")
			assert.Empty(t, violations(graph, goos))
		})
	}
}

// TestImportEdgesForbidden is the control: on the real graph with one edge more,
// that edge is reported.
func TestImportEdgesForbidden(t *testing.T) {
	graph := list(t, "linux")
	for _, tt := range []struct {
		name, from, to, goos string
		want                 string
	}{
		{"core imports a source", "selfupdate", module + "/source/http", "linux", "selfupdate imports source/http"},
		{"checksum imports the core", "checksum", module + "/selfupdate", "linux", "checksum imports selfupdate"},
		{"checksum imports another module", "checksum", "golang.org/x/sys/unix", "linux", "checksum imports golang.org/x/sys/unix"},
		{"core links net/http", "selfupdate", "net/http", "linux", "selfupdate reaches net/http"},
		{"core imports the signatures", "selfupdate", module + "/signature", "linux", "selfupdate imports signature"},
		{"core imports the archives", "selfupdate", module + "/archive", "linux", "selfupdate imports archive"},
		{"core imports a signature's module", "selfupdate", "aead.dev/minisign", "linux", "selfupdate imports aead.dev/minisign"},
		{"core links net/http through checksum", "checksum", "net/http", "darwin", "selfupdate reaches net/http"},
		{"core uses the Windows commit on Linux", "selfupdate", "github.com/minio/selfupdate", "linux", "selfupdate imports github.com/minio/selfupdate"},
		{"a cluster's client", "source/http", "k8s.io/client-go/rest", "linux", "source/http reaches k8s.io/client-go/rest"},
		{"a package that is not in the table", "invented", "fmt", "linux", "invented is not in the table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := maps.Clone(graph)
			from := fake[module+"/"+tt.from]
			from.ImportPath = module + "/" + tt.from
			from.Module = &struct{ Path string }{module}
			from.Imports = append(slices.Clone(from.Imports), tt.to)
			fake[from.ImportPath] = from
			if _, ok := fake[tt.to]; !ok {
				p := pkg{ImportPath: tt.to, Standard: tt.to == "fmt" || tt.to == "net/http"}
				if !p.Standard {
					p.Module = &struct{ Path string }{tt.to}
				}
				fake[tt.to] = p
			}
			assert.Contains(t, strings.Join(violations(fake, tt.goos), "\n"), tt.want)
		})
	}
}

// TestSourceImports looks at every Go file of the repository, whichever module
// and build constraints it has.
func TestSourceImports(t *testing.T) {
	assert.Empty(t, fileViolations(t, os.DirFS(".")))
}

func TestSourceImportsForbidden(t *testing.T) {
	dir := t.TempDir()
	write := func(name, imports string) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte("package p\n\nimport _ \""+imports+"\"\n"), 0o644))
	}
	write("tools/a.go", "k8s.io/client-go/rest")
	write("selfupdate/b_plan9.go", "github.com/stretchr/testify/assert")
	write("selfupdate/b_test.go", "github.com/stretchr/testify/assert")
	write("examples/x/main.go", "k8s.io/client-go/rest")
	assert.Equal(t, []string{
		"selfupdate/b_plan9.go imports github.com/stretchr/testify/assert",
		"tools/a.go imports k8s.io/client-go/rest",
	}, fileViolations(t, os.DirFS(dir)))
}

// list returns the packages of the module with all that they import on goos.
func list(t *testing.T, goos string) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	graph := map[string]pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return graph
		} else {
			require.NoError(t, err)
		}
		graph[p.ImportPath] = p
	}
}

// violations returns each import that the two tables do not allow.
func violations(graph map[string]pkg, goos string) []string {
	var found []string
	for _, importPath := range slices.Sorted(maps.Keys(graph)) {
		p := graph[importPath]
		if p.Module == nil || p.Module.Path != module {
			continue
		}
		name := below(importPath)
		allowed, ok := edges[name]
		if !ok {
			found = append(found, name+" is not in the table of import edges")
		}
		modules := allowed.modules
		if goos == "windows" {
			modules = slices.Concat(modules, allowed.windows)
		}
		for _, to := range p.Imports {
			q := graph[to]
			switch {
			case q.Standard || q.Module == nil:
			case q.Module.Path == module && slices.Contains(allowed.own, below(to)):
			case q.Module.Path != module && slices.Contains(modules, q.Module.Path):
			default:
				found = append(found, name+" imports "+below(to))
			}
		}
		reached := reach(graph, importPath)
		for _, key := range []string{name, "..."} {
			never := neverReached[key]
			if goos == "windows" && !never.windows {
				continue
			}
			for _, to := range reached {
				if matches(to, never.packages) {
					found = append(found, name+" reaches "+to)
				}
			}
		}
	}
	return found
}

// reach returns all that a package imports, directly or not.
func reach(graph map[string]pkg, from string) []string {
	seen := map[string]bool{}
	var walk func(string)
	walk = func(p string) {
		for _, to := range graph[p].Imports {
			if !seen[to] {
				seen[to] = true
				walk(to)
			}
		}
	}
	walk(from)
	return slices.Sorted(maps.Keys(seen))
}

// fileViolations returns each import of a Go file that its place forbids.
func fileViolations(t *testing.T, repository fs.FS) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || name == "dist" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(repository, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			inExample := strings.HasPrefix(name, "examples/")
			inTest := strings.HasSuffix(name, "_test.go")
			if !inExample && matches(to, foreign) || !inTest && matches(to, []string{"github.com/stretchr/"}) {
				found = append(found, fmt.Sprintf("%s imports %s", name, to))
			}
		}
		return nil
	}))
	return found
}

// matches reports whether an import path is in the list.
func matches(importPath string, list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return importPath == s || strings.HasSuffix(s, "/") && strings.HasPrefix(importPath, s)
	})
}

// below cuts the path of this module off.
func below(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}
