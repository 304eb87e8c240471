package show

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Clean makes a text from the database fit for one cell of a terminal: whatever could move the cursor, change colours,
// turn the direction of writing or begin a new line becomes U+FFFD, which shows that there was something.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if harmful(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// harmful tells the characters that a terminal obeys instead of showing: C0, DEL and C1 controls, line and paragraph
// separators, and those that reorder what is around them.
func harmful(r rune) bool {
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\u061c', r == '\ufeff':
		return true
	case r >= '\u200e' && r <= '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return true
	}
	return false
}

// OneLine makes an error's text one line: its lines joined, each cleaned.
func OneLine(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		line = Clean(strings.ReplaceAll(strings.TrimSpace(line), "\t", " "))
		if line == "" {
			continue
		}
		switch {
		case out.Len() == 0:
		case strings.HasSuffix(out.String(), ":"):
			out.WriteString(" ")
		default:
			out.WriteString("; ")
		}
		out.WriteString(line)
	}
	return out.String()
}

// Nothing stands in a cell that has no value.
const Nothing = "–"

// Or returns the text cleaned, or Nothing where it is empty.
func Or(s string) string {
	if s == "" {
		return Nothing
	}
	return Clean(s)
}

// Time shows an instant in UTC to the second, or Nothing.
func Time(t time.Time) string {
	if t.IsZero() {
		return Nothing
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// Age shows a duration in two figures or three, whatever its size.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// Count shows a number with its thousands apart.
func Count(n int64) string {
	digits := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Plural shows a number with the singular or the plural of what it counts.
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}
