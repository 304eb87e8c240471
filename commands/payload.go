package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

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
	// size is the number of bytes in which PostgreSQL renders it.
	size int64
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
	canonical, size, err := canonicalize(raw)
	if err != nil {
		return payload{}, payloadProblem(err)
	}
	if size > int64(maxBytes) {
		return payload{}, fmt.Sprintf("has %d bytes as PostgreSQL renders it, at most %d are allowed", size, maxBytes)
	}
	return payload{text: string(raw), canonical: canonical, size: size}, ""
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

// canonicalizers are kept for reuse: a decoder's own buffers cost more than most payloads.
var canonicalizers = sync.Pool{New: func() any {
	return &canonicalizer{decoder: jsontext.NewDecoder(new(bytes.Buffer), jsontext.AllowDuplicateNames(true))}
}}

// canonicalize returns the canonical rendering of a JSON text that holds one value, and the size of PostgreSQL's own.
func canonicalize(raw []byte) (canonical []byte, size int64, err error) {
	c := canonicalizers.Get().(*canonicalizer)
	defer func() {
		// It must not keep the payload.
		c.decoder.Reset(new(bytes.Buffer), jsontext.AllowDuplicateNames(true))
		c.members = c.members[:0]
		canonicalizers.Put(c)
	}()
	c.decoder.Reset(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	canonical, size, err = c.value(make([]byte, 0, len(raw)), 0)
	if err != nil {
		return nil, 0, err
	}
	switch _, err = c.decoder.ReadToken(); {
	case err == nil:
		return nil, 0, payloadError("is followed by something else")
	case !errors.Is(err, io.EOF):
		return nil, 0, err
	}
	return canonical, size, nil
}

// canonicalizer reads one JSON value and renders it so that equal values have equal bytes: object members sorted, the
// last of those with one name, numbers without needless zeros. Beside it, it counts the bytes of PostgreSQL's own
// rendering, which is what the limit is about.
type canonicalizer struct {
	decoder *jsontext.Decoder
	// members are a stack: those of each object that is being read, the innermost last.
	members []member
}

// member is one of an object's, by its place in what has been rendered: from start to nameEnd its name, up to end its
// value.
type member struct {
	start, nameEnd, end int
	size                int64
}

// value appends the next value to out and returns the size of PostgreSQL's rendering of it.
func (c *canonicalizer) value(out []byte, depth int) ([]byte, int64, error) {
	switch c.decoder.PeekKind() {
	case '{':
		return c.object(out, depth+1)
	case '[':
		return c.array(out, depth+1)
	case '"':
		return c.text(out)
	case '0':
		number, err := c.decoder.ReadValue()
		if err != nil {
			return nil, 0, err
		}
		return appendNumber(out, string(number))
	default:
		token, err := c.decoder.ReadToken()
		if err != nil {
			return nil, 0, err
		}
		text := token.String()
		return append(out, text...), int64(len(text)), nil
	}
}

// text appends the next string.
func (c *canonicalizer) text(out []byte) ([]byte, int64, error) {
	quoted, err := c.decoder.ReadValue()
	if err != nil {
		return nil, 0, err
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		// Without an escape there is nothing in it that PostgreSQL would render in another way.
		return append(out, quoted...), int64(len(quoted)), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil, 0, err
	}
	return appendString(out, string(text))
}

func (c *canonicalizer) array(out []byte, depth int) ([]byte, int64, error) {
	if depth > MaxPayloadDepth {
		return nil, 0, payloadError(fmt.Sprintf("is nested more than %d deep", MaxPayloadDepth))
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return nil, 0, err
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

func (c *canonicalizer) object(out []byte, depth int) ([]byte, int64, error) {
	if depth > MaxPayloadDepth {
		return nil, 0, payloadError(fmt.Sprintf("is nested more than %d deep", MaxPayloadDepth))
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return nil, 0, err
	}
	out = append(out, '{')
	first, base := len(c.members), len(out)
	for c.decoder.PeekKind() != '}' {
		if len(out) > base {
			out = append(out, ',')
		}
		m := member{start: len(out)}
		var err error
		var nameSize int64
		if out, nameSize, err = c.text(out); err != nil {
			return nil, 0, err
		}
		m.nameEnd = len(out)
		out = append(out, ':')
		if out, m.size, err = c.value(out, depth); err != nil {
			return nil, 0, err
		}
		m.end = len(out)
		m.size += nameSize + 2
		c.members = append(c.members, m)
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return nil, 0, err
	}
	members := c.members[first:]
	c.members = c.members[:first]
	return c.sorted(out, base, members)
}

// sorted puts the members of an object in order, which stand behind base in the order in which they were read, and ends it.
func (c *canonicalizer) sorted(out []byte, base int, members []member) ([]byte, int64, error) {
	read, shift := out, 0
	name := func(m member) []byte { return read[m.start-shift : m.nameEnd-shift] }
	byName := func(a, b member) int { return bytes.Compare(name(a), name(b)) }
	if !slices.IsSortedFunc(members, byName) {
		// A copy of this object alone: one of all that was read so far would make a long array of them quadratic.
		read, shift = slices.Clone(out[base:]), base
		// Stable, so that of equal names the last given is the last here, and it is the one that counts.
		slices.SortStableFunc(members, byName)
	}
	out = out[:base]
	total := int64(2)
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(name(members[i+1]), name(m)) {
			continue
		}
		if len(out) > base {
			out = append(out, ',')
			total += 2
		}
		// Where they were in order already, this moves nothing, or to the left over one that does not count.
		out = append(out, read[m.start-shift:m.end-shift]...)
		total += m.size
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
