package localpg

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// MinMajor is the oldest major version of PostgreSQL that Daybook works with.
const MinMajor = 15

// Binaries is one installation of PostgreSQL's server binaries.
type Binaries struct {
	// Dir is the folder with initdb, postgres and, where the installation is a full one, pg_dump,
	// psql and the other clients.
	Dir string
	// Version is the version as PostgreSQL tells it, such as "15.18" or "18beta2".
	Version string
	// Major is the first part of Version.
	Major int
}

// Path returns where the named program would be, such as "pg_dump". Not every installation has
// every client, so it may not exist.
func (b Binaries) Path(program string) string {
	return filepath.Join(b.Dir, executable(program))
}

// HasLibrary reports whether a loadable module such as "pg_stat_statements" is installed, so that
// it may be named in shared_preload_libraries. Naming one that is missing keeps a server from
// starting at all.
func (b Binaries) HasLibrary(name string) bool {
	// Each packager puts modules elsewhere; these are the places relative to the binaries.
	for _, dir := range []string{"lib", "lib/postgresql", fmt.Sprintf("lib/postgresql@%d", b.Major), "lib64/pgsql", "lib/pgsql"} {
		for _, ext := range []string{".so", ".dylib", ".dll"} {
			if _, err := os.Stat(filepath.Join(b.Dir, "..", filepath.FromSlash(dir), name+ext)); err == nil {
				return true
			}
		}
	}
	return false
}

// Find returns the newest supported server binaries on this machine.
//
// DAYBOOK_POSTGRES_BIN, when set, names the only folder looked at. Otherwise the folders of PATH
// and those of the usual packages are searched, and the highest released version wins. What
// `make postgres` fetched is used only where there is nothing else, because it comes
// without pg_dump and psql. If there is nothing at all the error is a [*NotFoundError].
func Find() (Binaries, error) {
	return thisMachine().find(0)
}

// FindMajor is Find for one major version: data written by one can't be read by another.
func FindMajor(major int) (Binaries, error) {
	return thisMachine().find(major)
}

// At returns the binaries in one folder, whatever else is installed. If there are none, or they
// are too old, the error is a [*NotFoundError].
func At(dir string) (Binaries, error) {
	b, err := inspect(dir)
	if err == nil && b.Major < MinMajor {
		err = fmt.Errorf("%s is older than %d", b.Version, MinMajor)
	}
	if err != nil {
		return Binaries{}, &NotFoundError{Override: dir, Unsuitable: []string{err.Error()}}
	}
	return b, nil
}

// machine is where to look, as values: so a test can describe a machine with nothing on it.
type machine struct {
	override string
	path     []string
	packages []string // patterns of folders that packages install to
	fetched  []string // patterns of folders that `make postgres` fills
}

// released matches a version that is out: a beta is never picked by itself, only when named.
var released = regexp.MustCompile(`^\d+\.\d+$`)

func (m machine) find(major int) (Binaries, error) {
	if m.override != "" {
		b, err := At(m.override)
		if err == nil && major != 0 && b.Major != major {
			err = &NotFoundError{Override: m.override, Major: major, Unsuitable: []string{"version " + b.Version}}
		}
		return b, err
	}
	missing := &NotFoundError{Major: major, Searched: slices.Concat([]string{"the folders of PATH"}, m.packages, m.fetched)}
	for _, patterns := range [][]string{slices.Concat(m.path, m.packages), m.fetched} {
		var best Binaries
		for _, pattern := range patterns {
			// The only error is a malformed pattern, which then names no folder.
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				b, err := inspect(dir)
				switch {
				case os.IsNotExist(err):
				case err != nil:
					missing.Unsuitable = append(missing.Unsuitable, err.Error())
				case b.Major < MinMajor || !released.MatchString(b.Version) || major != 0 && b.Major != major:
					missing.Unsuitable = append(missing.Unsuitable, dir+" (version "+b.Version+")")
				case newer(b.Version, best.Version):
					best = b
				}
			}
		}
		if best.Dir != "" {
			return best, nil
		}
	}
	return Binaries{}, missing
}

// inspect asks the server binary of a folder for its version. The error satisfies os.IsNotExist
// when the folder has no server in it.
func inspect(dir string) (Binaries, error) {
	b := Binaries{Dir: dir}
	if err := b.complete(); err != nil {
		return Binaries{}, err
	}
	// A folder of PATH often has links only: the modules are found from where they lead.
	if file, err := filepath.EvalSymlinks(b.Path("postgres")); err == nil {
		if linked := (Binaries{Dir: filepath.Dir(file)}); linked.complete() == nil {
			b = linked
		}
	}
	// A binary for another system may hang rather than fail, under an emulator for example.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.Path("postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w", b.Path("postgres"), err)
	}
	// For example "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
	m := regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`).FindSubmatch(out)
	if m == nil {
		return Binaries{}, fmt.Errorf("%s --version: no version in %q", b.Path("postgres"), out)
	}
	b.Version = string(m[1])
	b.Major, _ = strconv.Atoi(string(m[2]))
	return b, nil
}

// complete tells whether the folder has what it takes to make and run a server.
func (b Binaries) complete() error {
	for _, program := range []string{"postgres", "initdb"} {
		info, err := os.Stat(b.Path(program))
		if err != nil {
			return err
		}
		if info.IsDir() {
			return &fs.PathError{Op: "run", Path: b.Path(program), Err: fs.ErrNotExist}
		}
	}
	return nil
}

// newer compares released versions by number: 15.10 is newer than 15.9.
func newer(a, b string) bool {
	var aMajor, aMinor, bMajor, bMinor int
	// An empty b stays 0.0, older than anything.
	_, _ = fmt.Sscanf(a, "%d.%d", &aMajor, &aMinor)
	_, _ = fmt.Sscanf(b, "%d.%d", &bMajor, &bMinor)
	return aMajor > bMajor || aMajor == bMajor && aMinor > bMinor
}

func executable(program string) string {
	if runtime.GOOS == "windows" {
		return program + ".exe"
	}
	return program
}
