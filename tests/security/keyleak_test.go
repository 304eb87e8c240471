package security_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// told collects all that a process says: log lines, errors and results in every form, spans, metrics.
type told struct {
	bytes.Buffer
	spans   *tracetest.InMemoryExporter
	metrics *metric.ManualReader
	config  commands.Config
}

func listen() *told {
	o := &told{spans: tracetest.NewInMemoryExporter(), metrics: metric.NewManualReader()}
	options := &slog.HandlerOptions{Level: slog.LevelDebug - 10, AddSource: true}
	o.config = commands.Config{
		Logger:         slog.New(slog.NewJSONHandler(&o.Buffer, options)),
		TracerProvider: trace.NewTracerProvider(trace.WithSyncer(o.spans)),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(o.metrics)),
	}
	return o
}

// note prints whatever a call was given and has returned, in every form.
func (o *told) note(values ...any) {
	for _, v := range values {
		fmt.Fprintf(o, "%v\n%+v\n%#v\n%s\n%x\n", v, v, v, v, v)
		if text, err := json.Marshal(v); err == nil {
			o.Write(text)
		}
		o.config.Logger.Info("note", "value", v)
		for err, ok := v.(error); ok && err != nil; err = errors.Unwrap(err) {
			fmt.Fprintf(o, "%T %v %+v %#v\n", err, err, err, err)
		}
	}
}

func (o *told) all(t *testing.T) string {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := o.metrics.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	metrics, err := json.Marshal(rm)
	if err != nil {
		t.Fatal(err)
	}
	spans, err := json.Marshal(o.spans.GetSpans())
	if err != nil {
		t.Fatal(err)
	}
	if len(o.spans.GetSpans()) == 0 || len(rm.ScopeMetrics) == 0 {
		t.Error("no spans or no metrics, so nothing is searched there")
	}
	return o.String() + string(metrics) + string(spans)
}

// needle is what is looked for, in each of the forms that somebody might have written it in.
func needle(raw string) map[string][]byte {
	all := map[string][]byte{
		"text": []byte(raw), "hex": []byte(hex.EncodeToString([]byte(raw))), "HEX": []byte(strings.ToUpper(hex.EncodeToString([]byte(raw)))),
		"UTF-16": []byte(strings.Join(strings.Split(raw, ""), "\x00")),
	}
	// Base64 of a text that begins one or two bytes into what is encoded looks different; the ends are cut off, as they
	// depend on the neighbours.
	for offset := range 3 {
		padded := append(bytes.Repeat([]byte{0}, offset), raw...)
		encoded := base64.StdEncoding.EncodeToString(padded)
		all[fmt.Sprint("base64 ", offset)] = []byte(encoded[4 : len(encoded)-8])
	}
	return all
}

func find(haystack []byte, raw string) []string {
	var found []string
	for form, text := range needle(raw) {
		if bytes.Contains(haystack, text) {
			found = append(found, form)
		}
	}
	return found
}

func randomText(prefix string) string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// The server logs all that it can, the process prints all that it has, each path and each failure is provoked; then
// the key is searched for wherever a byte may have come to rest. A scope, which is sent, is found in each of those places, or else the
// search itself is at fault.
func TestKeysNeverLeaveTheProcess(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, serverThatLogsEverything(t))
	db := cluster.New(t)
	if len(column(t, db.Pool, `select name from pg_available_extensions where name = 'pg_stat_statements'`)) == 1 {
		db.Exec(t, `create extension pg_stat_statements`)
	}
	o := listen()
	key, scope := randomText("key-"), randomText("scope-")
	leaky := &leak{told: o, db: db, key: ledger.NewKey(key), scope: scope}
	leaky.everyPath(t)
	db.Exec(t, `checkpoint`)

	catalogs := strings.Join(column(t, db.Pool, `
		select a::text from pg_stat_activity as a
		union all
		select query_to_xml('select * from pg_stat_statements', true, false, '')::text
		where to_regclass('pg_stat_statements') is not null
		union all
		select query_to_xml('select * from daybook.' || c.relname, true, false, '')::text
		from pg_class as c where c.relnamespace = 'daybook'::regnamespace and c.relkind in ('r', 'v')`), "\n")
	log, err := os.ReadFile(cluster.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]byte{
		"what the process said": []byte(o.all(t)), "the catalogs": []byte(catalogs), "the server log": log,
		"the dump": dump(t, cluster, db),
	}
	searched := map[string]int{}
	err = filepath.WalkDir(cluster.DataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(path, cluster.DataDir+"/"), "/")
		searched[folder]++
		places["the folder "+folder] = append(places["the folder "+folder], content...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for place, content := range places {
		// Beyond the eight characters that a preview may show.
		if found := find(content, key[8:]); len(found) > 0 {
			t.Errorf("the key is in %s, as %v", place, found)
		}
	}
	for _, place := range []string{"the catalogs", "the server log", "the dump", "the folder base", "the folder pg_wal", "what the process said"} {
		if found := find(places[place], scope); len(found) == 0 {
			t.Errorf("the scope, which was sent, is not found in %s: the search shows nothing", place)
		}
	}
	t.Logf("files searched: %v", searched)
}

// dump is pg_dump's text. An installation without pg_dump has none; what it would hold is then searched as tables and files.
func dump(t *testing.T, cluster *pgtest.Cluster, db *pgtest.DB) []byte {
	t.Helper()
	program := cluster.Binaries.Path("pg_dump")
	if _, err := os.Stat(program); err != nil {
		return []byte(strings.Join(column(t, db.Pool, `select b::text from daybook.binding as b`), "\n"))
	}
	text, err := exec.CommandContext(t.Context(), program, "--inserts", db.URL).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	return text
}

// ignoreGone lets temporary files go that the server has removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func serverThatLogsEverything(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{
		"log_min_duration_statement": "0", "log_statement": "all", "log_parameter_max_length": "-1",
		"log_parameter_max_length_on_error": "-1", "log_min_error_statement": "debug5", "log_min_messages": "debug1",
		"log_error_verbosity": "verbose", "debug_print_plan": "off", "log_lock_waits": "on", "deadlock_timeout": "100ms",
		"log_connections": "on", "log_disconnections": "on", "track_activity_query_size": "100kB", "full_page_writes": "on", "fsync": "off",
	}
	var preload []string
	binaries, err := localpg.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"pg_stat_statements", "auto_explain"} {
		if binaries.HasLibrary(library) {
			preload = append(preload, library)
		}
	}
	if len(preload) > 0 {
		settings["shared_preload_libraries"] = strings.Join(preload, ",")
		settings["auto_explain.log_min_duration"] = "0"
		settings["auto_explain.log_nested_statements"] = "on"
		settings["auto_explain.log_verbose"] = "on"
		settings["pg_stat_statements.track"] = "all"
	}
	return settings
}
