package selfupdate

import (
	"context"
)

// restartAfter calls the caller's hook for another program when what runs may not
// be what is at the target: after a change, or when an earlier call failed or was
// never made. A program on trial that can't be restarted is left again.
func (u *Updater) restartAfter(ctx context.Context, res Result, err error) (Result, error) {
	if u.cfg.Restart == nil || u.own {
		return res, err
	}
	t := u.target
	r, rerr := t.read()
	if rerr != nil || !r.PendingRestart {
		return res, err
	}
	state := Replaced
	if res.Outcome == RolledBack {
		state = Restored
	}
	herr := u.restart(ctx, state)
	if herr == nil {
		return res, err
	}
	if r.Phase != phaseTrial || r.Trial.Max == 0 || ctx.Err() != nil {
		return res, join(err, herr)
	}
	back, berr := u.rollback(ctx, RollbackOptions{Reason: clip("could not be restarted: "+herr.Error(), maxReason)}, classUnhealthy, r.Trial.ID)
	if isErr(berr, ErrChanged) { // it was confirmed meanwhile, or left
		return res, join(err, herr)
	}
	if berr != nil {
		return res, join(err, herr, berr)
	}
	return back, join(err, failedIn(Restored, "restart", t.target, herr), u.restart(ctx, Restored))
}

// restart calls the hook and records that it is done. When that can't be recorded,
// the next Apply calls it again.
func (u *Updater) restart(ctx context.Context, state State) error {
	was := u.target.stamp()
	if err := u.cfg.Restart(ctx); err != nil {
		return failedIn(state, "restart", u.target.target, err)
	}
	if err := u.target.restarted(ctx, was); err != nil {
		u.target.log.Warn("the restart could not be recorded: it is asked for again", "error", err)
	}
	return nil
}
