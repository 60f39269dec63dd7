package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHealth(t *testing.T) {
	type saw struct {
		at   time.Duration
		good bool
		want bool // proven by this one
	}
	const soak = time.Minute
	for _, tt := range []struct {
		name string
		seen []saw
	}{
		{"two good ones, the soak time apart", []saw{{0, true, false}, {soak, true, true}}},
		{"one is not enough, however late", []saw{{time.Hour, true, false}}},
		{"within the soak time", []saw{{0, true, false}, {soak / 2, true, false}, {soak, true, true}}},
		{"one bad between good ones", []saw{{0, true, false}, {30 * time.Second, false, false}, {soak, true, true}}},
		{"two bad in a row begin again", []saw{
			{0, true, false}, {1, false, false}, {2, false, false},
			{2 * soak, true, false}, {3*soak - 1, true, false}, {3 * soak, true, true},
		}},
		{"every second one is bad", []saw{{0, true, false}, {soak / 2, false, false}, {soak, true, true}, {soak + 1, false, false}, {soak + 2, true, true}}},
		{"never good", []saw{{0, false, false}, {soak, false, false}, {time.Hour, false, false}}},
		{"proven, then sick", []saw{{0, true, false}, {soak, true, true}, {2 * soak, false, false}, {3 * soak, false, false}, {4 * soak, true, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, start := health{soak: soak}, time.Now()
			for i, s := range tt.seen {
				assert.Equal(t, s.want, h.saw(s.good, start.Add(s.at)), "reconcile %d", i+1)
			}
		})
	}
}

func TestCanProve(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		interval, soak, deadline time.Duration
		want                     bool
	}{
		{"defaults", 3 * time.Minute, time.Minute, 10 * time.Minute, true},
		{"no soak", time.Second, 0, 3 * time.Second, true},
		{"deadline at the second reconcile", time.Second, 0, 2 * time.Second, false},
		{"soak as long as the deadline", time.Second, time.Minute, time.Minute, false},
		{"a long interval is cut while unsure", time.Hour, 0, 2 * time.Minute, true},
	} {
		assert.Equal(t, tt.want, CanProve(tt.interval, tt.soak, tt.deadline), tt.name)
	}
}
