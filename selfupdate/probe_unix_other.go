//go:build unix && !linux

package selfupdate

func awaitExit(int) bool { return false } // no waitid(2) in x/sys
