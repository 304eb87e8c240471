package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// payload is a request's payload, checked.
type payload struct {
	// text is the JSON that is sent.
	text string
	// canonical is one rendering for all texts of the same JSON value; it is hashed, never sent.
	canonical []byte
}

// newPayload marshals, checks and measures a payload. The problem, where there is one, holds nothing of the payload.
func newPayload(value any, maxBytes int) (p payload, problem string) {
	raw, problem := marshalPayload(value)
	if problem != "" {
		return payload{}, problem
	}
	// White space and escapes make a text longer than its rendering, but not without end.
	if len(raw) > 8*maxBytes {
		return payload{}, fmt.Sprintf("is too large: a text of %d bytes", len(raw))
	}
	c := canonicalizer{decoder: jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))}
	canonical, size, err := c.value(nil, 0)
	if err == nil {
		_, err = c.decoder.ReadToken()
		if err == nil {
			err = payloadError("is followed by something else")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return payload{}, payloadProblem(err)
	}
	if size > int64(maxBytes) {
		return payload{}, fmt.Sprintf("has %d bytes as PostgreSQL renders it, at most %d are allowed", size, maxBytes)
	}
	return payload{text: string(raw), canonical: canonical}, ""
}

// marshalPayload keeps to what encoding/json makes of a value, but refuses the invalid UTF-8 that it would silently
// replace.
func marshalPayload(value any) (raw []byte, problem string) {
	switch v := value.(type) {
	case json.RawMessage:
		if v != nil {
			return v, ""
		}
	case jsontext.Value:
		if v != nil {
			return v, ""
		}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, payloadProblem(err)
	}
	// It writes what is no UTF-8 as this escape, and the character U+FFFD as it is. Raw JSON inside the value may hold
	// the escape too, so that a stricter marshaller must tell; its output is not used, because to it a json.Number is a string.
	if bytes.Contains(raw, []byte(`\ufffd`)) {
		_, err := jsonv2.Marshal(value, jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false))
		if err != nil && strings.Contains(err.Error(), "UTF-8") {
			return nil, "is not valid UTF-8"
		}
	}
	return raw, ""
}

// payloadProblem says what is wrong with a payload without quoting any of it: a parser's error may.
func payloadProblem(err error) string {
	if problem := payloadError(""); errors.As(err, &problem) {
		return string(problem)
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if strings.Contains(syntactic.Err.Error(), "UTF-8") || strings.Contains(syntactic.Err.Error(), "surrogate") {
			return fmt.Sprintf("is not valid UTF-8 at byte %d", syntactic.ByteOffset)
		}
		return fmt.Sprintf("is not valid JSON at byte %d", syntactic.ByteOffset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "is not valid JSON: it ends too soon"
	}
	return "cannot be marshalled to JSON"
}

type payloadError string

func (e payloadError) Error() string { return string(e) }

// canonicalizer reads one JSON value and renders it so that equal values have equal bytes: object members sorted, the
// last of those with one name, numbers without needless zeros. Beside it, it counts the bytes of PostgreSQL's own
// rendering, which is what the limit is about.
type canonicalizer struct{ decoder *jsontext.Decoder }

// value appends the next value to out and returns the size of PostgreSQL's rendering of it.
func (c canonicalizer) value(out []byte, depth int) ([]byte, int64, error) {
	token, err := c.decoder.ReadToken()
	if err != nil {
		return nil, 0, err
	}
	switch token.Kind() {
	case '{':
		return c.object(out, depth+1)
	case '[':
		return c.array(out, depth+1)
	case '"':
		return appendString(out, token.String())
	case '0':
		return appendNumber(out, token.String())
	default:
		text := token.String()
		return append(out, text...), int64(len(text)), nil
	}
}

func (c canonicalizer) array(out []byte, depth int) ([]byte, int64, error) {
	if depth > MaxPayloadDepth {
		return nil, 0, payloadError(fmt.Sprintf("is nested more than %d deep", MaxPayloadDepth))
	}
	out = append(out, '[')
	total := int64(2)
	for n := 0; c.decoder.PeekKind() != ']'; n++ {
		if n > 0 {
			out = append(out, ',')
			total += 2
		}
		var size int64
		var err error
		if out, size, err = c.value(out, depth); err != nil {
			return nil, 0, err
		}
		total += size
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return nil, 0, err
	}
	return append(out, ']'), total, nil
}

// member is one of an object's: its name, and name and value rendered.
type member struct {
	name      string
	canonical []byte
	size      int64
}

func (c canonicalizer) object(out []byte, depth int) ([]byte, int64, error) {
	if depth > MaxPayloadDepth {
		return nil, 0, payloadError(fmt.Sprintf("is nested more than %d deep", MaxPayloadDepth))
	}
	var members []member
	for c.decoder.PeekKind() != '}' {
		token, err := c.decoder.ReadToken()
		if err != nil {
			return nil, 0, err
		}
		m := member{name: token.String()}
		var nameSize int64
		if m.canonical, nameSize, err = appendString(nil, m.name); err != nil {
			return nil, 0, err
		}
		m.canonical = append(m.canonical, ':')
		if m.canonical, m.size, err = c.value(m.canonical, depth); err != nil {
			return nil, 0, err
		}
		m.size += nameSize + 2
		members = append(members, m)
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return nil, 0, err
	}
	// Stable, so that of equal names the last given is the last here, and it is the one that counts.
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	out = append(out, '{')
	total, written := int64(2), 0
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		if written > 0 {
			out = append(out, ',')
			total += 2
		}
		out = append(out, m.canonical...)
		total += m.size
		written++
	}
	return append(out, '}'), total, nil
}

// appendString renders a string as PostgreSQL does: only quote, backslash and control characters are escaped.
func appendString(out []byte, s string) ([]byte, int64, error) {
	start := len(out)
	out = append(out, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == 0:
			return nil, 0, payloadError(`holds \u0000, which PostgreSQL cannot store`)
		case b == '"' || b == '\\':
			out = append(out, '\\', b)
		case b == '\b':
			out = append(out, '\\', 'b')
		case b == '\f':
			out = append(out, '\\', 'f')
		case b == '\n':
			out = append(out, '\\', 'n')
		case b == '\r':
			out = append(out, '\\', 'r')
		case b == '\t':
			out = append(out, '\\', 't')
		case b < 0x20:
			out = fmt.Appendf(out, `\u%04x`, b)
		default:
			out = append(out, b)
		}
	}
	out = append(out, '"')
	return out, int64(len(out) - start), nil
}
