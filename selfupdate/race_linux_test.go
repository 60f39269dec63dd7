//go:build race

package selfupdate

const raceEnabled = true
