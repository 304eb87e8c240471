package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// install puts programs into a folder that only tell a version.
func install(t *testing.T, dir, version string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Fatal("these tests need a shell")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"postgres", "initdb"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s (Example 1.2-3)'\n", program, version)
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindTakesTheNewestRelease(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	at := func(name, version string) string { return install(t, filepath.Join(root, name), version) }
	m := machine{
		path:     []string{at("path", "15.9"), filepath.Join(root, "missing")},
		packages: []string{filepath.Join(root, "lib", "*", "bin")},
		fetched:  []string{at("fetched", "18.4")},
	}
	at("lib/14/bin", "14.22")
	at("lib/15/bin", "15.10")
	at("lib/beta/bin", "19beta2")

	b, err := m.find(0)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Binaries{Dir: filepath.Join(root, "lib/15/bin"), Version: "15.10", Major: 15}); b != want {
		t.Errorf("found %+v, want %+v", b, want)
	}
	if b, err := m.find(18); err != nil || b.Version != "18.4" {
		t.Errorf("version 18: %+v, %v", b, err)
	}
	m.packages, m.path = nil, nil
	if b, err := m.find(0); err != nil || b.Version != "18.4" {
		t.Errorf("with nothing but what was fetched: %+v, %v", b, err)
	}
	m.override = at("mine", "19beta2")
	if b, err := m.find(0); err != nil || b.Version != "19beta2" || b.Major != 19 {
		t.Errorf("with an override: %+v, %v", b, err)
	}
}

// Packages link programs into a folder of PATH, but modules are found from the real one.
func TestFindFollowsLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := install(t, filepath.Join(root, "real", "bin"), "16.2")
	lib := filepath.Join(root, "real", "lib")
	links := filepath.Join(root, "links")
	for _, d := range []string{links, lib} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"postgres", "initdb"} {
		if err := os.Symlink(filepath.Join(dir, program), filepath.Join(links, program)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(lib, "a_module.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := machine{path: []string{links}}.find(0)
	if err != nil {
		t.Fatal(err)
	}
	if !b.HasLibrary("a_module") || b.HasLibrary("another") {
		t.Errorf("modules of %+v: a_module %v, another %v", b, b.HasLibrary("a_module"), b.HasLibrary("another"))
	}
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := install(t, filepath.Join(root, "old"), "13.4")
	for name, c := range map[string]struct {
		machine machine
		major   int
		want    []string
	}{
		"nothing": {
			machine: machine{packages: []string{"/nowhere/*/bin"}},
			want: []string{
				"no server binaries of PostgreSQL 15 or later", "/nowhere/*/bin", "make postgres",
				"apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql@17", "DAYBOOK_POSTGRES_BIN",
			},
		},
		"too old": {
			machine: machine{path: []string{old}},
			want:    []string{"not usable", old, "13.4"},
		},
		"other major": {
			machine: machine{path: []string{install(t, filepath.Join(root, "new"), "17.1")}},
			major:   16,
			want:    []string{"PostgreSQL 16", "17.1", "brew install postgresql@16"},
		},
		"override with nothing": {
			machine: machine{override: root, path: []string{install(t, filepath.Join(root, "good"), "17.1")}},
			want:    []string{root + " has no server binaries", "DAYBOOK_POSTGRES_BIN"},
		},
		"override of another major": {
			machine: machine{override: install(t, filepath.Join(root, "named"), "17.1")},
			major:   15,
			want:    []string{"named", "17.1", "PostgreSQL 15"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := c.machine.find(c.major)
			var missing *NotFoundError
			if !errors.As(err, &missing) {
				t.Fatalf("found %+v, error %v", b, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		want string // "" where it is valid
	}{
		"zero":             {},
		"full":             {cfg: Config{Port: 5433, StartTimeout: 1, Settings: map[string]string{"pg_stat_statements.max": "100", "search_path": `"$user", 'x\'`}}},
		"port":             {Config{Port: 65536}, "port 65536"},
		"timeout":          {Config{StartTimeout: -1}, "negative"},
		"name of setting":  {Config{Settings: map[string]string{"a = 1\nb": "x"}}, "not the name"},
		"value of setting": {Config{Settings: map[string]string{"a": "x\nfsync = off"}}, "one line"},
		"chosen here":      {Config{Settings: map[string]string{"Listen_Addresses": "*"}}, "chosen by localpg"},
	} {
		err := c.cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestReadPidFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want pidFile
		ok   bool
	}{
		"starting": {"123\n/data\n1700000000\n5433\n", pidFile{pid: 123, port: 5433}, true},
		"ready": {
			"123\n/data\n1700000000\n5433\n/data\n127.0.0.1\n  5432001         7\nready   \n",
			pidFile{pid: 123, port: 5433, socketDir: "/data", memoryID: "7", ready: true},
			true,
		},
		"stopping": {
			"123\n/data\n1700000000\n5433\n\n127.0.0.1\n  5432001         7\nstopping\n",
			pidFile{pid: 123, port: 5433, memoryID: "7"},
			true,
		},
		"empty":   {"", pidFile{}, false},
		"garbage": {"-1\n", pidFile{}, false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readPidFile(dir)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What `make postgres` takes for installed, the tests must find, and the other way round.
func TestInstallScriptAgrees(t *testing.T) {
	t.Parallel()
	found, findErr := Find()
	out, err := exec.Command("sh", "install.sh", "find").Output()
	if (err == nil) != (findErr == nil) {
		t.Fatalf("install.sh says %q, %v; Find %+v, %v", out, err, found, findErr)
	}
	if err == nil {
		if b, err := At(strings.TrimSpace(string(out))); err != nil {
			t.Errorf("install.sh names %q, At says %+v, %v", out, b, err)
		}
	}
}
