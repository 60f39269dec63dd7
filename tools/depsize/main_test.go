package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestTable keeps the programs building as the packages change.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := table(t.Context(), &out, "../.."); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if rows := strings.Count(out.String(), "\n") - 2; rows != len(uses) {
		t.Errorf("%d rows, want %d", rows, len(uses))
	}
}
