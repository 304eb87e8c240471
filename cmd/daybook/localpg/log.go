package localpg

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// tailBytes bounds how much of a log is read for its last lines: logs of long runs are large.
const tailBytes = 64 << 10

// logTail returns the last lines of a log, of what stands at or after the given offset. An
// unreadable log has no lines: this only ever adds to another error.
func logTail(file string, from int64, lines int) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from = max(from, end-tailBytes)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	all := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// withLog adds the end of the log to what an error says, where there is one.
func withLog(file string, from int64) string {
	tail := logTail(file, from, 20)
	if tail == "" {
		return "\n(" + file + " says nothing)"
	}
	return "\nThe end of " + file + ":\n" + tail
}
