package controller

import "time"

const (
	enough  = 2                // good reconciles prove a program, the soak time apart
	tooMany = 2                // bad ones in a row begin that again
	unsure  = 30 * time.Second // between reconciles until then, unless the interval is shorter
)

// health tells when this process has proved that its program works. One bad
// reconcile between good ones says nothing: an API may answer 429 to anybody.
type health struct {
	soak   time.Duration
	good   int
	bad    int // in a row
	since  time.Time
	proven bool
}

// saw takes in one reconcile, which ended at now, and returns whether the program
// may be confirmed at the end of it.
func (h *health) saw(good bool, now time.Time) bool {
	if !good {
		if h.bad++; h.bad >= tooMany {
			h.good, h.proven = 0, false
		}
		return false
	}
	if h.bad = 0; h.good == 0 {
		h.since = now
	}
	h.good++
	h.proven = h.good >= enough && now.Sub(h.since) >= h.soak
	return h.proven
}

// CanProve reports whether a program that works can be proved within deadline.
func CanProve(interval, soak, deadline time.Duration) bool {
	return max(soak, min(interval, unsure))+min(interval, unsure) < deadline
}
