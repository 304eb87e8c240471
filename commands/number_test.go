package commands

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestAppendNumber(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", maxIntegerDigits)
	for _, test := range []struct {
		text, want string
		size       int64
	}{
		{"0", "0", 1},
		{"-0", "0", 1},
		{"-0.00", "0", 4},
		{"100", "1e2", 3},
		{"-1.250", "-125e-2", 6},
		{"1e131071", "1e131071", maxIntegerDigits},
		{"-1e131071", "-1e131071", maxIntegerDigits + 1},
		{"1e-16383", "1e-16383", maxFractionDigits + 2},
		// What counts is the value, not how it is written.
		{"0.0001e131075", "1e131071", maxIntegerDigits},
		{"0e200000", "0", 1},
		{"0." + zeros + "1e131072", "1e-1", 3},
	} {
		got, size, err := appendNumber(nil, test.text)
		if err != nil || string(got) != test.want || size != test.size {
			t.Errorf("%.40s: %.40q %d %v, want %q %d", test.text, got, size, err, test.want, test.size)
		}
	}
	for _, text := range []string{
		"1e131072", "0.1e131073", "1" + zeros, "1e-16384", "0e-16384", "0.0" + strings.Repeat("0", maxFractionDigits),
		"1e9223372036854775807", "1e9223372036854775808", "1e-9223372036854775808", "1e-99999999999999999999",
	} {
		if got, _, err := appendNumber(nil, text); err == nil {
			t.Errorf("%.40s is accepted as %.40q", text, got)
		}
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// A canonical number has the value of its text, is the same for all texts of that value, and the size is that of
// PostgreSQL's rendering, which keeps the fraction's zeros.
func FuzzNumber(f *testing.F) {
	for _, seed := range []string{"0", "-0.0", "1e5", "1.50e1", "120e-3", "-12.3400E+2", "0.00001e6", "1e-300", "1e300"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !jsonNumber.MatchString(text) || len(text) > 100 {
			return
		}
		got, size, err := appendNumber(nil, text)
		_, exponentText, _ := strings.Cut(strings.ToLower(text), "e")
		exponent, _ := strconv.Atoi(exponentText)
		if err != nil {
			if exponent > -10_000 && exponent < 100_000 {
				t.Fatalf("%s: %v", text, err)
			}
			return
		}
		if !jsonNumber.Match(got) {
			t.Fatalf("%s is rendered as %s", text, got)
		}
		value, _ := new(big.Rat).SetString(text)
		rendered, ok := new(big.Rat).SetString(string(got))
		if value == nil || !ok {
			return // beyond what big.Rat reads
		}
		if value.Cmp(rendered) != 0 {
			t.Fatalf("%s is rendered as %s", text, got)
		}
		again, _, err := appendNumber(nil, string(got))
		if err != nil || string(again) != string(got) {
			t.Fatalf("%s is rendered as %s, and that as %s (%v)", text, got, again, err)
		}
		mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
		_, fraction, _ := strings.Cut(mantissa, ".")
		want := value.FloatString(max(0, len(fraction)-exponent))
		if int64(len(want)) != size {
			t.Fatalf("%s has %d bytes, is said to have %d", want, len(want), size)
		}
	})
}
