package show_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
)

// terminal returns both ends of a new terminal: what a program writes to the one is read from the other.
func terminal(t *testing.T) (program, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := func(request uintptr, value *int32) {
		t.Helper()
		_, _, code := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), request, uintptr(unsafe.Pointer(value)))
		if code != 0 {
			t.Fatal(code)
		}
	}
	var number, locked int32
	control(syscall.TIOCSPTLCK, &locked)
	control(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = program.Close(), screen.Close() })
	return program, screen
}

// TestMeterOnATerminal: a bar that goes on from where an earlier run was interrupted tells the rate and the time left of
// this one, may grow after it was full, and leaves the line to what is written next.
func TestMeterOnATerminal(t *testing.T) {
	program, screen := terminal(t)
	m := show.NewMeter(program, "rebuilding v")
	if !m.Terminal() {
		t.Fatal("it takes a terminal for something else")
	}
	m.Report(show.Progress{Done: 900, Of: 1000, Percent: 90, Rate: 50, Left: 2 * time.Second})
	m.Report(show.Progress{Done: 1000, Of: 1000, Percent: 100, Rate: 50})
	m.Report(show.Progress{Done: 1100, Of: 2000, Percent: 55, Rate: 40, Left: 22 * time.Second})
	m.End()
	fmt.Fprintln(program, "error: the end")

	var seen strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(seen.String(), "error: the end\r\n") {
		n, err := screen.Read(buffer)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(buffer[:n])
	}
	text := seen.String()
	for _, want := range []string{"rebuilding v, 50/s, 2.0 s left", " 90% ", "(900/1000)", "100%", "rebuilding v, 40/s, 22.0 s left", " 55% ", "(1100/2000)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	// What is on the screen in the end: the last of each line's overwritings.
	lines := strings.Split(strings.TrimSuffix(text, "\r\n"), "\n")
	last := lines[len(lines)-1]
	if strings.TrimRight(last[strings.LastIndex(last, "\r")+1:], " ") != "error: the end" {
		t.Errorf("the error is hidden: %q", text)
	}
}
