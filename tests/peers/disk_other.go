//go:build !darwin && !linux

package main

// diskFree cannot tell on this system.
func diskFree(string) (free uint64, ok bool) { return 0, false }
