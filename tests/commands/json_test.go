package commands_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// jsonValue is a generated JSON value. Its leaves are texts, since what matters is how they are written: also such that
// jsonb refuses.
type jsonValue struct {
	kind     byte // '{', '[', '"', '0', or 0 for a word
	text     string
	elements []jsonValue
	names    []string
}

var (
	jsonNumbers = []string{
		"0", "-0", "0.0", "-0.00", "1", "1.0", "1e0", "10e-1", "0.1e1", "-1", "100", "1e2", "1.50", "15e-1", "150E-2", "1.5e+3",
		"9007199254740992", "9007199254740993", "1e131071", "10e131070", "1e131072", "0.1e131072", "1e-16383", "10e-16384", "1e-16384",
		"0e200000", "0e-16383", "0e-16384", "1e1000000000", "0e1073741822", "0e1073741823", "1e-1073741823", "12345678901234567890.5",
		"0.00001e131076", "1e00000000000000000000000000000005", "01", "1.", ".5", "+1", "1e", "NaN", "Infinity", "0x1",
	}
	jsonStrings = []string{
		``, `a`, `b`, `a.b`, `*`, `#`, `é`, `\u00e9`, `\u00E9`, "e\u0301", `\"`, `\\`, `\/`, `/`, `\b\f\n\r\t`, `\u000a`, `\u0001`, `\u001f`,
		"\x7f", `\u007f`, `😀`, `\ud83d\ude00`, `\u2028`, "\u2028", "\ufffd", `\ufffd`, "\ufeff", "\U0010ffff", `\udbff\udfff`,
		`\u0000`, `\ud800`, `\udc00`, `\ud800\u0041`, `\ud83d\ud83d\ude00`, "\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x00", "\n",
		`\x`, `\u12`, `\U0001f600`, `'`, `1`,
	}
	jsonWords = []string{"null", "true", "false", "nul", "TRUE", ""}
)

// jsonText draws a value at most so deep. Nine in ten leaves are such that jsonb takes them.
func jsonText(t *rapid.T, depth int) jsonValue {
	kinds := []byte{'0', '0', '"', '"', 0}
	if depth > 0 {
		kinds = append(kinds, '{', '{', '{', '[', '[')
	}
	value := jsonValue{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	common := rapid.IntRange(0, 9).Draw(t, "odd") > 0
	switch value.kind {
	case '0':
		value.text = rapid.SampledFrom(jsonNumbers).Draw(t, "number")
		if common {
			value.text = rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,9})?([eE][-+]?[0-9]{1,2})?`).Draw(t, "number")
		}
	case '"':
		value.text = jsonString(t, common)
	case 0:
		value.text = rapid.SampledFrom(jsonWords).Draw(t, "word")
		if common {
			value.text = "null"
		}
	default:
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			value.names = append(value.names, jsonString(t, common))
			value.elements = append(value.elements, jsonText(t, depth-1))
		}
	}
	return value
}

func jsonString(t *rapid.T, common bool) string {
	if common {
		return rapid.SampledFrom(jsonStrings[:28]).Draw(t, "string")
	}
	return rapid.SampledFrom(jsonStrings).Draw(t, "string")
}

// vary returns the value, or another one that is often equal to it, or nearly.
func (v jsonValue) vary(t *rapid.T) jsonValue {
	switch rapid.IntRange(0, 4).Draw(t, "change") {
	case 0:
		return v
	case 1:
		return jsonText(t, 2)
	}
	if len(v.elements) == 0 {
		return v.varyLeaf(t)
	}
	i := rapid.IntRange(0, len(v.elements)-1).Draw(t, "element")
	changed := jsonValue{
		kind: v.kind, elements: append([]jsonValue(nil), v.elements...), names: append([]string(nil), v.names...),
	}
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0: // once more, before or after
		j := rapid.IntRange(0, len(v.elements)).Draw(t, "place")
		changed.elements = append(changed.elements[:j:j], append([]jsonValue{v.elements[i]}, v.elements[j:]...)...)
		changed.names = append(changed.names[:j:j], append([]string{v.names[i]}, v.names[j:]...)...)
	case 1: // in another place
		j := rapid.IntRange(0, len(v.elements)-1).Draw(t, "place")
		changed.elements[i], changed.elements[j] = v.elements[j], v.elements[i]
		changed.names[i], changed.names[j] = v.names[j], v.names[i]
	case 2:
		changed.names[i] = jsonValue{kind: '"', text: v.names[i]}.varyLeaf(t).text
	default:
		changed.elements[i] = v.elements[i].vary(t)
	}
	return changed
}

func (v jsonValue) varyLeaf(t *rapid.T) jsonValue {
	switch v.kind {
	case '"':
		escaped := strings.NewReplacer("é", `\u00e9`, "a", `\u0061`, "/", `\/`, "😀", `\uD83D\uDE00`, `\n`, `\u000A`)
		return jsonValue{kind: '"', text: escaped.Replace(v.text)}
	case '0':
		mantissa, exponent, found := strings.Cut(v.text, "e")
		if !found && strings.Contains(mantissa, ".") {
			return jsonValue{kind: '0', text: mantissa + "0"}
		}
		if !found {
			return jsonValue{kind: '0', text: mantissa + rapid.SampledFrom([]string{".0", "e0", "E+00", "0e-1", "1"}).Draw(t, "same")}
		}
		return jsonValue{kind: '0', text: mantissa + "e" + exponent}
	}
	return v
}

// render writes the value with white space here and there.
func (v jsonValue) render(t *rapid.T) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t\r "}).Draw(t, "space")
	var b strings.Builder
	b.WriteString(space)
	switch v.kind {
	case '"':
		fmt.Fprintf(&b, `"%s"`, v.text)
	case '{', '[':
		b.WriteByte(v.kind)
		for i, element := range v.elements {
			if i > 0 {
				b.WriteString("," + space)
			}
			if v.kind == '{' {
				fmt.Fprintf(&b, `"%s"%s:`, v.names[i], space)
			}
			b.WriteString(element.render(t))
		}
		b.WriteByte(v.kind + 2) // the closing one
	default:
		b.WriteString(v.text)
	}
	b.WriteString(space)
	return b.String()
}
