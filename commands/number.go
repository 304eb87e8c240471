package commands

import (
	"math"
	"strconv"
	"strings"
)

// What PostgreSQL's numeric holds: digits before and after the decimal point.
const (
	maxIntegerDigits  = 131072
	maxFractionDigits = 16383
)

// maxExponent is beyond what PostgreSQL reads, also where the number would be small: it refuses 0e2000000000.
const maxExponent = math.MaxInt32 / 2

// errNumber is the problem of a number that PostgreSQL cannot store.
const errNumber = payloadError("holds a number beyond what PostgreSQL's numeric holds")

// appendNumber renders a JSON number as its significant digits and a power of ten, the same for 1, 1.0 and 10e-1, and
// counts the digits that PostgreSQL would write, without writing them: 1e131071 is short here and long there.
func appendNumber(out []byte, text string) ([]byte, int64, error) {
	if out, ok := appendInteger(out, text); ok {
		return out, int64(len(text)), nil
	}
	text, negative := strings.CutPrefix(text, "-")
	mantissa, exponentText, hasExponent := strings.Cut(strings.ToLower(text), "e")
	integer, fraction, _ := strings.Cut(mantissa, ".")
	exponent := 0
	if hasExponent {
		var err error
		exponent, err = strconv.Atoi(exponentText)
		if err != nil || exponent >= maxExponent || exponent <= -maxExponent {
			return nil, 0, errNumber
		}
	}
	// PostgreSQL keeps trailing zeros of a fraction: 1.50 has a scale of 2.
	scale := max(0, len(fraction)-exponent)
	if scale > maxFractionDigits {
		return nil, 0, errNumber
	}

	digits := strings.TrimLeft(integer+fraction, "0")
	integerDigits := len(digits) - len(fraction) + exponent
	if digits == "" {
		integerDigits, negative = 0, false
	}
	if integerDigits > maxIntegerDigits {
		return nil, 0, errNumber
	}
	size := int64(max(1, integerDigits))
	if scale > 0 {
		size += int64(1 + scale)
	}
	if negative {
		size++
		out = append(out, '-')
	}

	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return append(out, '0'), size, nil
	}
	out = append(out, significant...)
	if power := exponent - len(fraction) + len(digits) - len(significant); power != 0 {
		out = append(out, 'e')
		out = strconv.AppendInt(out, int64(power), 10)
	}
	return out, size, nil
}

// appendInteger renders what most numbers are: an integer of a few digits, but zero.
func appendInteger(out []byte, text string) ([]byte, bool) {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 1000 || digits == "0" {
		return out, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return out, false
		}
	}
	significant := strings.TrimRight(text, "0")
	out = append(out, significant...)
	if zeros := len(text) - len(significant); zeros > 0 {
		out = append(out, 'e')
		out = strconv.AppendInt(out, int64(zeros), 10)
	}
	return out, true
}
