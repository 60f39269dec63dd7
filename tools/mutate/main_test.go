package main

import (
	"regexp"
	"testing"
)

// TestMutationsApply keeps the list true: each mutation still finds its place in
// the code as it is. Whether a test sees it is what the command itself shows.
func TestMutationsApply(t *testing.T) {
	pkg, err := packageDir()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			if names[m.name] {
				t.Error("the name is there twice")
			}
			names[m.name] = true
			if _, err := m.apply(pkg); err != nil {
				t.Error(err)
			}
			if _, err := regexp.Compile(m.tests); err != nil || m.tests == "" {
				t.Errorf("tests %q: %v", m.tests, err)
			}
		})
	}
}

func TestMutationThatDoesNotApply(t *testing.T) {
	pkg, err := packageDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new string }{
		{"nowhere", "this is in no file", ""},
		{"twice", "return err", ""},
		{"no Go any more", "package selfupdate", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := (mutation{file: "swap.go", edits: one(tt.old, tt.new)}).apply(pkg); err == nil {
				t.Error("applied")
			}
		})
	}
}
