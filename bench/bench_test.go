package main

import (
	"bytes"
	"os"
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
	b := bench{sizes: []int64{4 << 20}, rounds: 1, dir: t.TempDir(), out: &out}
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
