package pgtest

import (
	"path/filepath"
	"syscall"
)

// memoryFolders returns a folder in memory, if this system has room for one. Making and dropping a
// database means some six hundred files, which is what tests would otherwise wait for.
//
// The size counts and not what is free at the moment, so that all processes come to the same answer.
// In a container it is small by default, and then the memory is usually limited too.
func memoryFolders() []string {
	const (
		shm     = "/dev/shm"
		tmpfs   = 0x01021994
		minSize = 4 << 30
	)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Type != tmpfs || fs.Blocks*uint64(fs.Bsize) < minSize {
		return nil
	}
	return []string{filepath.Join(shm, ownName())}
}
