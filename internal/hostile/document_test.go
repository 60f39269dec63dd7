package hostile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
	"github.com/metal-stack/selfreconcile/signature"
)

const (
	page  = "../../docs/trust.md"
	begin = "<!-- the table begins; written by go test ./internal/hostile -update -->\n"
	end   = "<!-- the table ends -->\n"
)

// sentinels by the name that a caller knows them by.
var sentinels = []struct {
	err  error
	name string
}{
	{signature.ErrMalformed, "signature.ErrMalformed"}, // before ErrSignature, which they are
	{signature.ErrInvalid, "signature.ErrInvalid"},
	{selfupdate.ErrSignature, "ErrSignature"},
	{selfupdate.ErrNotFound, "ErrNotFound"},
	{selfupdate.ErrNetwork, "ErrNetwork"},
	{selfupdate.ErrLimited, "ErrLimited"},
	{selfupdate.ErrDigestMismatch, "ErrDigestMismatch"},
	{selfupdate.ErrNoChecksum, "ErrNoChecksum"},
	{selfupdate.ErrVersionMismatch, "ErrVersionMismatch"},
	{selfupdate.ErrTooLarge, "ErrTooLarge"},
	{selfupdate.ErrSize, "ErrSize"},
	{selfupdate.ErrAsset, "ErrAsset"},
	{selfupdate.ErrInsecure, "ErrInsecure"},
	{selfupdate.ErrResponse, "ErrResponse"},
}

// document compares the table in docs/trust.md with the rows that were tried.
func document(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), begin)
	require.True(t, ok, "%s has no place for the table", page)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no end of the table", page)
	want := before + begin + table(t) + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.True(t, want == string(data), "%s is not what the rows say: go test ./internal/hostile -run TestDocument -update", page)
}

func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "\n### %s\n\n| what the server does | over | class | error | installed |\n|---|---|---|---|---|\n", g.title)
		for _, r := range g.rows {
			over, class, sentinel, installed := "http, TLS", "", "", "yes, whole"
			if r.tlsOnly {
				over = "TLS"
			}
			if r.want != nil {
				class, sentinel, installed = selfupdate.ClassOf(r.want).String(), nameOf(t, r.want), "no"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", strings.ReplaceAll(r.name, `\`, `\\`), over, class, sentinel, installed)
		}
	}
	return b.String() + "\n"
}

func nameOf(t *testing.T, err error) string {
	t.Helper()
	for _, s := range sentinels {
		if s.err == err {
			return "`" + s.name + "`"
		}
	}
	t.Errorf("no name for %v", err)
	return ""
}
