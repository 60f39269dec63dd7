//go:build !race

package selfupdate

const raceEnabled = false
