package main

// A mutation is one way to get the protocol of a trial wrong. Those that begin with
// "M-" are those of the model of the protocol that are code.
type mutation struct {
	name  string
	file  string // in selfupdate
	edits []edit
	tests string // the cheapest tests that should see it, a regular expression
}

// edit replaces a text that is in the file exactly once.
type edit struct{ old, new string }

func one(before, after string) []edit { return []edit{{before, after}} }

var mutations = []mutation{
	{"M-switch-before-intent", "swap.go", one(`	if err := t.announce(r, tr); err != nil {
		return nil, join(err, t.unannounce(r, tr))
	}
	st, err := t.swap(t.slot(d))
	if err != nil {
		return nil, join(failed("swap", t.target, err), t.withdraw(r, d))
	}
`, `	st, err := t.swap(t.slot(d))
	if err != nil {
		return nil, failed("swap", t.target, err)
	}
	if err := t.announce(r, tr); err != nil {
		return nil, join(err, t.unannounce(r, tr))
	}
`), "TestLostWrites$/first"},

	{"M-nofsync-slot", "stage.go", one(`	if err := f.Sync(); err != nil {
		return s, failed("stage", s.path, err)
	}
`, ``), "TestLostWrites$/first"},

	{"M-nofsync-slotdir", "swap.go", one(`	if err := t.sys.syncDir(t.slots); err != nil {
		return failed("keep old program", t.slots, err)
	}
	if !here {
`, `	if !here {
`), "TestLostWrites$/first"},

	{"M-nofsync-state", "state.go", one(`		err = f.Sync()
`, ``), "TestLostWrites$/first"},

	{"M-nofsync-statedir", "state.go", one(`return failed("write record", t.record(), t.sys.syncDir(t.state))`, `return nil`), "TestLostWrites$/first"},

	{"M-no-backup", "swap.go", one(`	if t.same(slot, t.target) || t.intact(d) {
		return nil
	}
	return t.linkOver(t.target, slot)
`, `	_ = slot
	return nil
`), "TestLostWrites$/first"},

	{"M-count-after-exec", "start.go", one(`	if unsynced != nil {
		return 0, failed("read record", t.record(), unsynced)
	}
`, `	if unsynced != nil {
		return 0, failed("read record", t.record(), unsynced)
	}
	if !inside {
		return 0, nil
	}
`), "TestTrialCrashes"},

	{"M-pre-no-dirsync", "start.go", one(`join(err, failed("make the start durable", t.dir, t.sys.syncDir(t.dir)))`, `err`), "TestStartIsDurable$"},

	{"M-pre-no-statesync", "start.go", one(`unsynced := t.sys.syncDir(t.state)`, `unsynced := error(nil)`), "TestStartIsDurable$"},

	{"M-revert-no-dirsync", "swap.go", one(`return st, failedIn(Restored, "make the swap durable", t.dir, t.sys.syncDir(t.dir))`, `return st, nil`), "TestLostWrites$/rollback"},

	{"M-quarantine-late", "swap.go", []edit{{`func (t *target) recordBack(fallback checksum.Digest, st *stamp, over *trial) error {
	return t.change(func(r *record) error {
`, `func (t *target) recordBack(fallback checksum.Digest, st *stamp, over *trial) error {
	var late *trial
	if err := t.recordBackOnly(fallback, st, over, &late); err != nil || late == nil {
		return err
	}
	return t.change(func(r *record) error {
		t.judge(r, *late)
		return nil
	})
}

func (t *target) recordBackOnly(fallback checksum.Digest, st *stamp, over *trial, late **trial) error {
	return t.change(func(r *record) error {
`}, {`reason = t.judge(r, tr)`, `*late = &tr`}}, "TestLostWrites$/rollback"},

	{"M-gc-keeps-cur-only", "record.go", one(`	for _, e := range r.Good {
		all = append(all, e.SHA256)
	}
	if r.Trial != nil {
`, `	if r.Trial != nil {
`), "TestRollbackDamagedSlot|TestOlderProgramsAreForgotten|TestRollbackRejects"},

	{"M-confirm-not-durable", "start.go", one(`if err = t.change(change); isErr(err, ErrNoSpace)`, `weak := *t
	weak.sys.syncDir = func(string) error { return nil }
	if err = weak.change(change); isErr(err, ErrNoSpace)`), "TestConfirmIsDurable$"},

	{"M-gc-in-trial", "start.go", one(`	if candidate {
		return s, nil
	}
	return t.redo(`, `	if candidate {
		return s, t.sys.remove(t.slot(tr.Fallback))
	}
	return t.redo(`), "TestTrialKeepsItsPrograms$"},

	{"M-no-prearm", "swap.go", one(`	return t.linkOver(t.target, t.rollback)
`, `	return nil
`), "TestTrialFullDisk"},

	{"M-no-resolve", "start.go", one(`return t.resolveLeftover(r, there)`, `return nil`), "TestFallbackEndsATrial$"},

	// Not in the model.
	{"switch-not-durable", "swap.go", one(`return st, failedIn(Replaced, "make the swap durable", t.dir, t.sys.syncDir(t.dir))`, `return st, nil`), "TestLostWrites$/first"},

	{"way-back-not-durable", "swap.go", one(`	if err := t.arm(); err != nil {
		return failed("keep way back", t.rollback, err)
	}
	return failed("keep way back", t.dir, t.sys.syncDir(t.dir))
`, `	if err := t.arm(); err != nil {
		return failed("keep way back", t.rollback, err)
	}
	return nil
`), "TestLostWrites$/first"},

	{"begin-no-statesync", "trial.go", one(`unsynced := t.sys.syncDir(t.state)`, `_, unsynced := t.sys.lstat(t.state)`), "TestStartIsDurable$"},

	{"confirm-says-nil-too-early", "trial.go", one(`if !u.session.durable {`, `if false {`), "TestConfirmIsDurable$"},

	{"outside-says-nil-too-early", "helper.go", one(`return t.settled()`, `return nil`), "TestConfirmIsDurable$"},

	{"swept-before-it-is-durable", "settle.go", one(`if !durable {`, `if durable {`), "TestSweptWhenDurable$"},

	{"begin-no-dirsync", "trial.go", one(`return Start{}, failed("make the start durable", t.dir, t.sys.syncDir(t.dir))`, `return Start{}, nil`), "TestStartIsDurable$"},

	{"no-rearm", "start.go", one(`} else if err = t.rearm(r, missing); err == nil || missing {`, `} else {`), "TestRedoMakesAWayBack$"},

	{"unverified-way-back", "swap.go", one(`if got, err := t.hash(t.rollback, checksum.SHA256); err == nil && got.Equal(fallback) {
			return stampOf(fi)`, `if _, err := t.hash(t.rollback, checksum.SHA256); err == nil {
			return stampOf(fi)`), "TestRollbackDamagedSlot|TestOlderProgramsAreForgotten|TestRollbackRejects"},

	{"retreat-skipped", "start.go", one(`return t.retreat(r, fallback, err)`, `return Start{OnTrial: true}, err`), "TestTrialFullDisk"},

	{"counted-twice", "start.go", one(`case inside && candidate && tr.Pre != "" && !tr.Expired:`, `case false:`), "TestTrialConfirmed|TestTrialCrashes"},

	{"abandon-skipped", "start.go", one(`	case inside && fallback:
		return t.abandon(r, "the program before is running")
`, ``), "TestTrialWithoutHelper$"},

	{"rejection-bars-nothing", "record.go", one(`return j != nil && (j.Verdict != verdictInconclusive || j.Tries >= maxRetries)`, `return false`), "TestRollbackRejects|TestTrialCrashes"},

	{"tried-again-forever", "record.go", one(`(j.Verdict != verdictInconclusive || j.Tries >= maxRetries)`, `j.Verdict != verdictInconclusive`), "TestTriedAgainThreeTimes$"},

	{"pending-bars-nothing", "record.go", one(`(j.Verdict != verdictInconclusive || j.Tries >= maxRetries)`, `j.Verdict != verdictInconclusive && j.Verdict != verdictPending`), "TestTrialUnhealthy|TestTrialOutage"},

	{"an-outage-counts", "verdict.go", one(`if j.BootID != "" && j.BootID == boot && now-time.Duration(j.Mono) <= time.Duration(j.Deadline) {`, `if boot != "" && now > 0 {`), "TestTrialOutage"},

	{"guilty-at-once", "verdict.go", one(`if j.Counted >= maxCounted {`, `if j.Counted >= 1 {`), "TestTrialUnhealthy"},

	{"confirmed-by-another-file", "trial.go", []edit{ // it is asked before and under the lock
		{`if !u.outside() && !u.isTarget() {`, `if false {`},
		{`func() bool { return u.outside() || u.isTarget() }`, `func() bool { return true }`},
	}, "TestNotItsTurnToConfirm$"},

	{"confirmed-when-expired", "start.go", one(`case tr.Expired, id != "" && tr.ID != id:`, `case id != "" && tr.ID != id:`), "TestNotItsTurnToConfirm$"},

	{"confirmed-for-another-trial", "start.go", one(`case tr.Expired, id != "" && tr.ID != id:`, `case tr.Expired:`), "TestNotItsTurnToConfirm$"},

	{"wall-clock", "helper.go", one(`tr, boot, now := *r.Trial, t.sys.boot(), t.sys.mono()`, `tr, boot, now := *r.Trial, t.sys.boot(), time.Duration(t.sys.now().UnixNano())`), "TestTick"},

	{"clock-of-another-boot", "helper.go", one(`case tr.BootID != boot: // not`, `case tr.BootID == "": // not`), "TestTickAfterAReboot$"},

	{"refunds-without-end", "start.go", one(`case e.Orderly && tr.Refunds < tr.Max:`, `case e.Orderly:`), "TestRefundsEnd$"},

	{"foreign-file-undone", "start.go", one(`case !candidate && !fallback && !there.SHA256.IsZero():`, `case false:`), "TestTrialForeignFile"},

	{"salvaged-before-durable", "salvage.go", one(`if err := t.sys.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {`, `if err := error(nil); err != nil && !errors.Is(err, fs.ErrNotExist) {`), "TestPropertiesSeeds$"},

	{"a-kill-is-a-crash", "start.go", one(`case begun, e.Killed:`, `case begun:`), "TestKilledBeforeBegin$"},

	{"restarted-for-any-file", "helper.go", one(`if now := t.stamp(); was == nil || now == nil || *now == *was {`, `if was == nil || *was != (stamp{}) {`), "TestRestartedMeanwhile$"},

	{"put-back-not-durable", "start.go", one(`		if err := t.sys.syncDir(t.dir); err != nil {
			return Start{}, failedIn(Restored, "make the swap durable", t.dir, err)
		}
`, ``), "TestPropertiesSeeds$"},
}
