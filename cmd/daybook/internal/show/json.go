package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// Document writes one JSON document, indented.
func Document(w io.Writer, v any) error {
	return write(w, v, "  ")
}

// Line writes one JSON document on one line, for streams.
func Line(w io.Writer, v any) error {
	return write(w, v, "")
}

func write(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	// "<" is no danger to a terminal, and people read this too.
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	_, err := w.Write(escape(b.Bytes()))
	return err
}

// escape writes as \u what encoding/json leaves as it is and a terminal would obey. Such characters occur in strings
// only; the line breaks between members are the only controls outside.
func escape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r != '\n' && harmful(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}
