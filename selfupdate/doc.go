// Package selfupdate replaces a program by the version that it is told, and goes
// back. Start with [New] and [Updater.Apply]; [Rollback] is the way back.
//
//	u, err := selfupdate.New(selfupdate.Config{Trust: selfupdate.UnsignedChecksum("why")})
//	res, err := u.Apply(ctx, httpsource.Release("v2.5.1", url))
//	if res.RestartNeeded {
//		os.Exit(0) // or exec: it is the caller's turn
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
// more before that. What was rolled back is remembered by its digest and not
// installed again until [Clear] (the newest 16 are).
//
// # What is not
//
// Nothing brings a program back by itself that starts and then fails: at this
// stage that takes a [Rollback]. Nothing is restarted here. On Windows the swap is
// two renames, with an instant between them at which the path names nothing.
//
// # On disk
//
// For /usr/local/bin/app, all on the same file system:
//
//	app                        the program, a hard link to a slot
//	.app.rollback              a hard link to the program before it
//	.app.d/                    mode 0700
//	    state.json             the record: what is installed, what was rejected
//	    slots/<sha256>         the programs
//	    lock, state.lock       OS locks, which end with the process
//
// The state directory belongs to whoever made the first update; another user then
// gets [ErrPermission]. docs/design.md describes the record. Do not copy .app.d to another machine.
//
// # Concurrency
//
// Everything here is safe for concurrent use, between goroutines and processes.
// One update of a target runs at a time; another one gets [ErrBusy] at once.
package selfupdate
