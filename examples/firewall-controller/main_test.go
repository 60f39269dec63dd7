package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string // in the error; "" is none
	}{
		{"nothing", nil, ""},
		{"all", []string{"--spec", "a", "--status", "b", "--events", "c", "--interval", "1s", "--target", "d", "--allow-http", "--verbose", "--soak", "2s", "--trial-starts", "1", "--trial-deadline", "5s"}, ""},
		{"version", []string{"-v"}, ""},
		{"unknown flag", []string{"--what"}, "not defined"},
		{"argument", []string{"start"}, "no arguments"},
		{"negative soak", []string{"--soak", "-1s"}, "negative"},
		{"soak as long as the trial", []string{"--soak", "10m"}, "no version could confirm"},
		{"trial shorter than two reconciles", []string{"--soak", "0s", "--trial-deadline", "1m"}, "no version could confirm"},
		{"no interval", []string{"--interval", "0s"}, "must be positive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			o, err := parse(tt.args, &out)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				assert.Contains(t, out.String(), tt.want)
				return
			}
			require.NoError(t, err)
			assert.Positive(t, o.interval)
		})
	}
}
