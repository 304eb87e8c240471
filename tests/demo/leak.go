package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
)

// searchKeys looks for raw keys in every file of a folder: tables, indexes, write-ahead log and the server's log, which has
// every statement with its parameters. It returns how many files and bytes it looked at, and where it found any.
func searchKeys(folder string, keys []string) (files int, size int64, found []string, err error) {
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		size += int64(len(content))
		for _, key := range keys {
			if bytes.Contains(content, []byte(key)) {
				found = append(found, filepath.Base(name))
				break
			}
		}
		return nil
	})
	return files, size, found, err
}
