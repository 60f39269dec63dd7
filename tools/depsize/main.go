// Depsize measures what each package of the module adds to a program that imports
// it, and prints the table of docs/dependencies.md: the modules that end up in the
// program, and the bytes over a program that does nothing and over one that has
// net/http already, as a controller has.
//
// It builds small programs that call what an importer calls; a blank import would
// leave most code out. They exist only in an overlay, inside the module, so that
// they are built with the module's own versions and nothing is written there.
package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	repository := flag.String("repository", "..", "the module's `directory`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := table(ctx, os.Stdout, *repository); err != nil {
		fmt.Fprintln(os.Stderr, "depsize:", err)
		os.Exit(1)
	}
}

// use is how an importer uses a package.
type use struct {
	name    string
	imports []string
	body    string // of main
	decl    string // beside main
}

const module = "github.com/metal-stack/selfreconcile/"

var (
	nothing = use{name: "an empty program"}
	client  = use{name: "net/http's client", imports: []string{"net/http"}, body: `http.Get("https://example.org")`}
)

// measured is what came out for one use.
type measured struct {
	bytes   int64
	modules []string // without this one
}

func table(ctx context.Context, w io.Writer, repository string) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "depsize-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	empty, err := measure(ctx, work, repository, nothing)
	if err != nil {
		return err
	}
	online, err := measure(ctx, work, repository, client)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "| import | modules added | bytes over an empty program (%s) | over one with net/http (%s) |\n|---|---|--:|--:|\n", mib(empty.bytes), mib(online.bytes))
	for _, u := range uses {
		plain, err := measure(ctx, work, repository, u)
		if err != nil {
			return err
		}
		both := u
		both.imports = append([]string{"net/http"}, u.imports...)
		both.body = client.body + "\n" + u.body
		added, err := measure(ctx, work, repository, both)
		if err != nil {
			return err
		}
		modules := "none"
		if n := len(plain.modules); n > 0 {
			modules = fmt.Sprintf("%d: %s", n, strings.Join(plain.modules, ", "))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", u.name, modules, mib(plain.bytes-empty.bytes), mib(added.bytes-online.bytes))
	}
	return nil
}

func mib(bytes int64) string { return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20)) }

// measure builds a program for linux/amd64, stripped, and looks at it.
func measure(ctx context.Context, work, repository string, u use) (measured, error) {
	source := filepath.Join(work, "main.go")
	if err := os.WriteFile(source, []byte(u.source()), 0o644); err != nil {
		return measured{}, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(repository, "internal", "depsize", "main.go"): source},
	})
	if err != nil {
		return measured{}, err
	}
	overlayFile := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o644); err != nil {
		return measured{}, err
	}
	program := filepath.Join(work, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlayFile, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./internal/depsize")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return measured{}, fmt.Errorf("%s: %w\n%s", u.name, err, out)
	}
	stat, err := os.Stat(program)
	if err != nil {
		return measured{}, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return measured{}, err
	}
	m := measured{bytes: stat.Size()}
	for _, dep := range info.Deps {
		m.modules = append(m.modules, dep.Path)
	}
	return m, nil
}

func (u use) source() string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, i := range u.imports {
		fmt.Fprintf(&b, "\t%q\n", i)
	}
	fmt.Fprintf(&b, ")\n\nfunc main() {\n%s\n}\n%s", u.body, u.decl)
	return b.String()
}
