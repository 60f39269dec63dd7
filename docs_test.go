package selfreconcile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsCompile builds every Go program in the documentation.
func TestDocsCompile(t *testing.T) {
	found := 0
	for _, doc := range docs(t) {
		data, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(data, -1) {
			found++
			src := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(src, m[1], 0o600))
			out, err := exec.Command("go", "vet", src).CombinedOutput()
			assert.NoError(t, err, "%s:\n%s", doc, out)
		}
	}
	assert.Positive(t, found)
}

// TestDocsLinks wants every relative link to lead somewhere.
func TestDocsLinks(t *testing.T) {
	for _, doc := range docs(t) {
		data, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`).FindAllSubmatch(data, -1) {
			link := string(m[1])
			if strings.Contains(link, "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(doc), link))
			assert.NoError(t, err, "%s links to %s", doc, link)
		}
	}
}

// TestFaultsNameTests wants every test that docs/faults.md names to exist.
func TestFaultsNameTests(t *testing.T) {
	data, err := os.ReadFile("docs/faults.md")
	require.NoError(t, err)
	var source strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			source.Write(text)
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)").FindAllSubmatch(data, -1)
	assert.NotEmpty(t, named)
	for _, m := range named {
		assert.Contains(t, source.String(), "func "+string(m[1])+"(")
	}
}

func docs(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"docs/*.md", "examples/*/*.md", "bench/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, more...)
	}
	return all
}
