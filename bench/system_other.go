//go:build !linux

package main

func settle() {}

func fileSystem(string) string { return "unknown file system" }
