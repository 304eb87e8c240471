package show_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 語 …":       "plain é 語 …",
		"\x1b]0;title\x07":  "�]0;title�",
		"a\nb\tc\rd\x7f":    "a�b�c�d�",
		"c1 \u009b2J":       "c1 �2J",
		"turned \u202egnp":  "turned �gnp",
		"isolated \u2066x":  "isolated �x",
		"separated \u2028x": "separated �x",
		"invalid \xff\xfe":  "invalid ��",
		"joined \u200dx":    "joined \u200dx",
	} {
		if got := show.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	got := show.OneLine("first:\n\tsecond\x1b[1m \r\n\n  third\n")
	if want := "first: second�[1m; third"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAgeAndCount(t *testing.T) {
	var got []string
	for _, d := range []time.Duration{
		0, 999 * time.Millisecond, 1500 * time.Millisecond, 61 * time.Second, 3*time.Hour + 2*time.Minute, 50 * time.Hour,
	} {
		got = append(got, show.Age(d))
	}
	for _, n := range []int64{0, 999, 1000, -1234567} {
		got = append(got, show.Count(n))
	}
	want := []string{"0 ms", "999 ms", "1.5 s", "1 min 1 s", "3 h 2 min", "2 d 2 h", "0", "999", "1,000", "-1,234,567"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestJSON: whatever a text holds, a terminal obeys none of it, and a program reads what was there.
func TestJSON(t *testing.T) {
	const evil = "<a>\x1b[2J\u009b2J\u202e\u2028\x7f\"\\é"
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return show.Line(b, map[string]string{"text": evil}) },
		func(b *bytes.Buffer) error { return show.Document(b, map[string]string{"text": evil}) },
		func(b *bytes.Buffer) error { return show.Line(b, json.RawMessage(`{"text":`+quoted(t, evil)+`}`)) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\u009b\u202e\u2028\x7f") {
			t.Errorf("a terminal obeys %q", b.String())
		}
		var got struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Text != evil {
			t.Errorf("a program reads %q of %q (%v)", got.Text, b.String(), err)
		}
	}
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTable: a cell cannot leave its line, wide characters keep columns straight, and no line ends in blanks.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	columns := []show.Column{{Title: "name"}, {Title: "n", Number: true}, {Title: "about"}}
	err := show.Table(&b, columns, [][]string{{"語語", "5", ""}, {"a\nb", "1,000", "end"}}, "nothing")
	if err != nil {
		t.Fatal(err)
	}
	want := "name      n  about\n────  ─────  ─────\n語語      5\na�b   1,000  end\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Reset()
	if err := show.Table(&b, columns, nil, "nothing"); err != nil || b.String() != "nothing\n" {
		t.Errorf("got %q (%v)", b.String(), err)
	}
}

// TestMeter: what is not a terminal gets a line at the beginning and one at the end, and none in between in a hurry.
func TestMeter(t *testing.T) {
	var b bytes.Buffer
	m := show.NewMeter(&b, "rebuilding v")
	for done := int64(500); done <= 2000; done += 500 {
		m.Report(show.Progress{Done: done, Of: 2000, Percent: float64(done) / 20, Rate: 1000, Left: 1500 * time.Millisecond})
	}
	m.End()
	want := "rebuilding v: 500 of 2,000 (25 %), 1,000/s, 1.5 s left\nrebuilding v: 2,000 of 2,000 (100 %)\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
