// Package selfupdate replaces a program by the version that it is told, and goes
// back, also by itself when the new version does not prove itself. Start with [New]
// and [Updater.Apply]; then [Updater.Begin], [Updater.Guard] and [Updater.Confirm].
//
//	u, err := selfupdate.New(selfupdate.Config{
//		Trust: selfupdate.UnsignedChecksum("why"),
//		Trial: &selfupdate.Trial{},
//	})
//	start, err := u.Begin(ctx) // first of all
//	if start.Restart {
//		os.Exit(0)
//	}
//	go guard(u) // u.Guard(ctx) is ErrExpired: leave
//	for {
//		if work() == nil {
//			err = u.Confirm(ctx)
//		}
//		bounded, cancel := context.WithTimeout(ctx, 2*time.Minute) // else a stalled server holds up the work
//		res, err := u.Apply(bounded, httpsource.Release("v2.5.1", url))
//		cancel()
//		if res.RestartNeeded {
//			os.Exit(0) // or exec: it is the caller's turn
//		}
//	}
//
// # What is promised
//
// On Unix the target's path names a complete, verified program at every instant:
// the new file is downloaded beside it, verified, flushed to the disk, and put in
// place by one rename. That holds when the process is killed and when the power
// fails at any point (on file systems that keep what fsync promises), and on a
// full disk. After an error the target is what it was and nothing staged remains;
// where a later step failed, [Error.State] says what is there instead. A killed
// run's leftovers go with the next one.
//
// Mode, owner, file capabilities, POSIX ACL and SELinux label of the old file are
// kept, or the update is refused. The program before is kept to go back to, and one
// more before that. What was left is remembered by its digest and not installed
// again until [Clear] (the newest 16 are).
//
// # What a trial promises
//
// With [Config.Trial] a new version is on trial until its Confirm has returned nil:
//
//   - It gets at most [Trial.Starts] starts that are not stopped orderly, and
//     [Trial.Deadline] from each of them. The next start after that is the program
//     before it, which was confirmed. A start is counted durably before it happens.
//   - The way back is verified and needs neither the network, nor the new version, nor
//     free space (where the file system has hard links). It was prepared before the
//     switch, and survives a power cut at any point, its own included.
//   - After Confirm returned nil nothing goes back by itself.
//   - A version that was left for its own fault is rejected: at once when it never
//     got to Begin, else when it has failed twice while the program before was well, in
//     the same place within the same time. An outage therefore does not reject a good
//     version; it is tried again from the disk, not downloaded, at most three times.
//   - The wall clock decides nothing.
//   - The version that is wanted is never written here. [Updater.Apply] of a rejected
//     one is [ErrRejected], and the caller goes on with the version that it has.
//
// What the program's own process has to do for that is to get as far as Begin, and to
// leave when Guard says so. For one that does not, [Helper] does it from outside, as
// cmd/selfupdate-guard under systemd: Pre for what can't be executed or dies before
// Begin, Tick for what hangs. [Status.Protection] says which of them are at work.
//
// # What is not
//
// Without Pre, a version that can't be executed or dies before Begin stays; the check
// of its header and [RunProbe] before the switch make that rare. Without a trial, and
// at a first install, nothing comes back without a [Rollback]. What Confirm means is
// the caller's: a version that says so and works badly stays. While it is on trial
// another version has to wait ([ErrOnTrial]).
//
// Nothing is restarted here, but by the caller's [Config.Restart]. On Windows there is
// no trial, and the swap is two renames, with an instant between them at which the
// path names nothing. The monotonic clock stands still while a machine sleeps, and a
// deadline begins again after a boot. Where processes share no such clock (not Linux)
// only Guard ends a trial in time.
//
// # On disk
//
// For /usr/local/bin/app, all on the same file system:
//
//	app                        the program, a hard link to a slot
//	.app.rollback              a hard link to the program before it
//	.app.d/                    mode 0700
//	    state.json             the record: what is installed, on trial, rejected
//	    slots/<sha256>         the programs
//	    lock, state.lock       OS locks, which end with the process
//	    helper, timer          when Pre and Tick were last seen: for people
//
// The state directory belongs to whoever made the first update; another user then
// gets [ErrPermission]. docs/design.md describes the record. Do not copy .app.d to another machine.
//
// # Concurrency
//
// Everything here is safe for concurrent use, between goroutines and processes.
// One update of a target runs at a time; another one gets [ErrBusy] at once.
package selfupdate
