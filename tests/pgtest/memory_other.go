//go:build !linux

package pgtest

// memoryFolders returns none: only Linux has a file system in memory everywhere.
func memoryFolders() []string { return nil }
