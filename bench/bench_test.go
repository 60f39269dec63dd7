package main

import (
	"bytes"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(childMain())
	}
	os.Exit(m.Run())
}

// TestBench keeps the benchmark working: one round, small, and nothing is said
// about time.
func TestBench(t *testing.T) {
	var out bytes.Buffer
	b := bench{tables: []string{applyTable}, sizes: []int64{4 << 20}, rounds: 1, dir: t.TempDir(), out: &out}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, c := range contenders {
		if !strings.Contains(out.String(), c.name) {
			t.Errorf("%s is not in the table", c.name)
		}
	}
}

// TestTables does the same for the tables of a stable program and of power cuts.
func TestTables(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("these are made on Linux only")
		return
	}
	b := bench{tables: []string{stableTable, powercutTable}, sizes: []int64{4 << 20}, rounds: 1, calls: 20, samples: 2, disks: disks[1:], dir: t.TempDir()}
	var out bytes.Buffer
	b.out = &out
	if err := b.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log(out.String())
	for _, want := range append([]string{"selfupdate-guard pre, on tmpfs", "xfs  "}, stableRows...) {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the tables", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		f := regexp.MustCompile(`  +`).Split(strings.TrimSpace(line), -1)
		switch {
		case len(f) == 9 && strings.HasPrefix(f[1], ours):
			if !slices.Equal(f[6:], []string{"0", "0", "0"}) {
				t.Errorf("a power cut broke the program: %s", line)
			}
		case len(f) == 6 && slices.Contains(stableRows, f[0]) && f[4] != "0":
			t.Errorf("a file was changed: %s", line)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		name string
		list []float64
		want float64
	}{
		{"odd", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 2, 100}, 3},
		{"none", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := median(tt.list, func(v float64) float64 { return v }); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
