package firewall

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const good = `
apiVersion: firewall.metal-stack.io/v2
kind: Firewall
metadata:
  name: firewall
spec:
  controllerVersion: v2.5.1
  controllerURL: https://images.metal-stack.io/firewall-controller/v2.5.1/firewall-controller
  egressRules:
  - networkID: internet
    ips: [192.0.2.1]
`

func TestFileSpec(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"good", good, ""},
		{"mistyped key", strings.Replace(good, "controllerVersion", "controlerVersion", 1), `unknown field "controlerVersion"`},
		{"key twice", good + "  controllerURL: x\n", "already set"},
		{"other type", "spec: [1]\n", "malformed spec"},
		{"no spec", "kind: Firewall\n", "no key spec"},
		{"empty", "", "no key spec"},
		{"cut off", good[:len(good)-3], "malformed spec"},
		{"no YAML", "\x00\x01", "malformed spec"},
		{"too large", strings.Repeat("#", maxSpec+1), "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := File{SpecPath: filepath.Join(t.TempDir(), "firewall.yaml")}
			require.NoError(t, os.WriteFile(f.SpecPath, []byte(tt.content), 0o600))
			spec, err := f.Spec(t.Context())
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				assert.Equal(t, tt.name != "too large", errors.Is(err, ErrInvalid))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "v2.5.1", spec.ControllerVersion)
			assert.Equal(t, []EgressRule{{NetworkID: "internet", IPs: []string{"192.0.2.1"}}}, spec.EgressRules)
		})
	}
	annotated := strings.Replace(good, "  name: firewall\n", "  name: firewall\n  uid: x\n  annotations:\n    "+RetryAnnotation+": again\n", 1)
	spec, err := parse([]byte(annotated))
	require.NoError(t, err)
	assert.Equal(t, "again", spec.Retry)
	_, err = (&File{SpecPath: filepath.Join(t.TempDir(), "none")}).Spec(t.Context())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestFileChanges(t *testing.T) {
	f := File{SpecPath: filepath.Join(t.TempDir(), "firewall.yaml")}
	changes := f.Changes(t.Context())
	require.NoError(t, os.WriteFile(f.SpecPath, []byte(good), 0o600))
	for _, content := range []string{good, good + "#", "spec: {}"} {
		require.NoError(t, os.WriteFile(f.SpecPath, []byte(content), 0o600))
		select {
		case <-changes:
		case <-time.After(10 * time.Second):
			require.Fail(t, "not seen", content)
		}
	}
	require.NoError(t, os.WriteFile(f.SpecPath, []byte("spec: {}"), 0o600))
	select {
	case <-changes:
		assert.Fail(t, "the same content is no change")
	case <-time.After(3 * poll):
	}
}

func TestFileStatusAndEvents(t *testing.T) {
	dir := t.TempDir()
	f := File{StatusPath: filepath.Join(dir, "status.yaml"), EventsPath: filepath.Join(dir, "events.jsonl")}
	want := Status{ActualVersion: "v2.5.1", LastVersion: "v2.5.0", NextVersion: "v2.5.2", LastReconcile: time.Unix(1e9, 0).UTC(), PID: 7}
	require.NoError(t, f.SetStatus(t.Context(), Status{}))
	require.NoError(t, f.SetStatus(t.Context(), want))
	data, err := os.ReadFile(f.StatusPath)
	require.NoError(t, err)
	for _, line := range []string{"actualversion: v2.5.1\n", "lastversion: v2.5.0\n", "nextversion: v2.5.2\n", "lastreconcile: \"2001-09-09T01:46:40Z\"\n"} {
		assert.Contains(t, string(data), line)
	}
	var got Status
	require.NoError(t, yaml.UnmarshalStrict(data, &got))
	assert.Equal(t, want, got)

	require.NoError(t, f.Emit(t.Context(), Event{Reason: Updated}))
	require.NoError(t, f.Emit(t.Context(), Event{Reason: RolledBack}))
	data, err = os.ReadFile(f.EventsPath)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Len(t, lines, 2)
	var e Event
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &e))
	assert.Equal(t, RolledBack, e.Reason)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "no temporary file stays")
	none := File{}
	require.NoError(t, none.SetStatus(t.Context(), want))
	require.NoError(t, none.Emit(t.Context(), e))
	f.StatusPath = filepath.Join(dir, "none", "status.yaml")
	assert.Error(t, f.SetStatus(t.Context(), want))
}
