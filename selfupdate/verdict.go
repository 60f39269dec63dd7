package selfupdate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// judge remembers that the candidate of tr was left, and returns why. What an
// outage could have caused is decided by a control experiment: is the program before
// well in the same place at the same time?
func (t *target) judge(r *record, tr trial) (reason string) {
	class, verdict, reason := tr.verdict()
	c := tr.Candidate
	j := rejection{SHA256: c.SHA256, Published: c.Published, Inside: c.Inside, Version: c.Version, Class: class, Verdict: verdict, Reason: clip(reason, maxReason)}
	r.reject(j)
	if verdict == verdictPending {
		last := &r.Rejected[len(r.Rejected)-1]
		last.BootID, last.Mono, last.Deadline = t.sys.boot(), int64(t.sys.mono()), tr.Deadline
		t.keepSpare(r, c)
	} else if r.Spare != nil && r.Spare.SHA256.Equal(c.SHA256) {
		r.Spare = nil
	}
	return reason
}

// verdict says what the end of a trial means.
func (tr *trial) verdict() (class, verdict, reason string) {
	if tr.Class == classManual || tr.Max == 0 {
		return classManual, verdictManual, tr.Reason
	}
	if tr.Expired {
		return tr.Class, verdictPending, tr.Reason
	}
	var classes []string
	for _, f := range tr.Failures {
		class, _, _ := strings.Cut(f, ":")
		classes = append(classes, class)
	}
	reason = fmt.Sprintf("%s, not confirmed: %s", counted(tr.Started), strings.Join(slices.Compact(slices.Clone(tr.Failures)), "; "))
	// What never came to Begin has met no outage: nothing before it needs a network.
	if len(classes) > 0 && !slices.ContainsFunc(classes, func(c string) bool { return c != classExec && c != classCrash }) {
		if slices.Contains(classes, classExec) {
			return classExec, verdictGuilty, reason
		}
		return classCrash, verdictGuilty, reason
	}
	if slices.Contains(classes, classHang) {
		return classHang, verdictPending, reason
	}
	return classUnhealthy, verdictPending, reason
}

// resolve ends the control experiments: the program that is current is well. Soon
// enough after the way back, it was the candidate's fault and counts against it;
// else the two may just have met the same outage. It reports whether there were any.
func (r *record) resolve(boot string, now time.Duration) (changed bool) {
	for i := range r.Rejected {
		j := &r.Rejected[i]
		if j.Verdict != verdictPending {
			continue
		}
		changed = true
		if j.BootID != "" && j.BootID == boot && now-time.Duration(j.Mono) <= time.Duration(j.Deadline) {
			j.Counted++
		}
		j.Verdict = verdictInconclusive
		if j.Counted >= maxCounted {
			j.Verdict = verdictGuilty
			r.noWayBack(*j)
		}
		j.BootID, j.Mono, j.Deadline = "", 0, 0
		if j.bars() && r.Spare != nil && j.is(r.Spare.SHA256) {
			r.Spare = nil
		}
	}
	return changed
}

// counted is a number of starts for people.
func counted(starts int) string {
	if starts == 1 {
		return "1 start"
	}
	return fmt.Sprintf("%d starts", starts)
}
