package cli_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// testLostAnswer: the connection is cut when PostgreSQL answers a request that it has committed. The exit code says
// that nobody knows, and asking again with the key says what was decided.
func testLostAnswer(t *testing.T, d daybook) {
	db := newDB(t)
	const marker = "order.fulfil-whose-answer-is-lost"
	c := call{args: []string{"enqueue", "--type", marker, "--key-stdin"}, stdin: orderKey, url: cutting(t, db.URL, marker)}
	r := d.run(t, c)
	if r.code != 5 || r.stdout != "" || !strings.Contains(r.stderr, "hint: repeat the request with its key") {
		t.Errorf("exit code %d, want 5\n%s%s", r.code, r.stdout, r.stderr)
	}
	c.url = db.URL
	if got := outcome(t, d, c); got != "replayed" {
		t.Errorf("%s, want replayed", got)
	}
}

// cutting returns the URL of a proxy in front of a server. It passes everything on until a client has sent the marker,
// and then cuts that connection as soon as the server answers.
func cutting(t *testing.T, databaseURL, marker string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	u.Host = listener.Addr().String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go serveAndCut(client, target, []byte(marker))
		}
	}()
	return u.String()
}

func serveAndCut(client net.Conn, target string, marker []byte) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var sent atomic.Bool
	go func() {
		// The marker is part of one small message, which pgx sends with one write.
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if bytes.Contains(buffer[:n], marker) {
				sent.Store(true)
			}
			if _, werr := server.Write(buffer[:n]); err != nil || werr != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if sent.Load() || errors.Is(err, io.EOF) {
			return
		}
		if _, werr := client.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestStatementsPrepare: every statement of the tool and of the status is one that PostgreSQL takes.
func TestStatementsPrepare(t *testing.T) {
	db := newDB(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	prepared := 0
	for _, pattern := range []string{"../../cmd/daybook/internal/cli/sql/*.sql", "../../ledger/sql/status*.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			statement, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Conn().Prepare(t.Context(), "", string(statement)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			prepared++
		}
	}
	if prepared < 6 {
		t.Errorf("%d statements found, want 6 at least", prepared)
	}
}
