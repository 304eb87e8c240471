//go:build darwin || linux

package main

import "syscall"

// diskFree is how many bytes are free where a folder lies; not ok where that cannot be told.
func diskFree(folder string) (free uint64, ok bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}
