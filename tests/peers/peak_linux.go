package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// peakOf says what peakMemory tells.
const peakOf = "resident memory of the process (VmHWM)"

// peakMemory is the most memory that this process ever had: the pages of the program that it touched, too. Not what
// getrusage tells: that begins with the memory of whoever started it.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kilobytes, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM")
}
