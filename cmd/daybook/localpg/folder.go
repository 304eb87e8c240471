package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	logName      = "server.log"
	settingsName = "daybook.conf"
)

// clusterMajor tells which major version made the cluster in a folder: 0 when the folder is missing
// or empty. A folder that holds anything else is refused, since initdb would be too late to say so.
func clusterMajor(dataDir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, fmt.Errorf("%s: PG_VERSION says %q", dataDir, text)
		}
		return major, nil
	}
	if !os.IsNotExist(err) {
		return 0, err
	}
	entries, err := os.ReadDir(dataDir)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(entries) > 0 {
		return 0, fmt.Errorf("%s is not empty and has no PostgreSQL cluster in it (found %s): name another folder",
			dataDir, entries[0].Name())
	}
	return 0, nil
}

// makeFolder makes the data folder and its parents. Parents are passable for all, whatever the umask,
// because the server may run as another user.
func makeFolder(dataDir string) error {
	var missing []string
	for dir := filepath.Dir(dataDir); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Mkdir(dataDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// initCluster runs initdb. Locale C sorts and compares by bytes, the same on every version and
// system; the encoding has to be named, because C alone would mean SQL_ASCII.
func initCluster(ctx context.Context, bins Binaries, dataDir string, owner *identity, sync bool) error {
	args := []string{
		"--pgdata", dataDir, "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions",
	}
	if !sync {
		args = append(args, "--no-sync")
	}
	cmd := command(bins, "initdb", dataDir, args...)
	setAttributes(cmd, owner, false)
	out, err := runContext(ctx, cmd)
	if err != nil {
		return fmt.Errorf("initdb of %s: %w\n%s", dataDir, err, strings.TrimSpace(out))
	}
	return nil
}

// writeSettings puts the settings in a file of their own, included at the end of postgresql.conf.
// On the command line they would outrank ALTER SYSTEM, and in postgresql.conf itself they would pile
// up from start to start.
func writeSettings(dataDir string, settings map[string]string, owner *identity) error {
	var b strings.Builder
	b.WriteString("# Written at each start by localpg. Changes belong in its caller, or in ALTER SYSTEM.\n")
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, quote.Replace(settings[name]))
	}
	file := filepath.Join(dataDir, settingsName)
	if err := writeOwn(file, os.O_CREATE|os.O_TRUNC, b.String()); err != nil {
		return err
	}
	if err := giveTo(file, owner); err != nil {
		return err
	}

	conf := filepath.Join(dataDir, "postgresql.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	include := "include_if_exists = '" + settingsName + "'"
	if strings.Contains(string(text), include) {
		return nil
	}
	return writeOwn(conf, os.O_APPEND, "\n"+include+"\n")
}

// writeOwn writes to a file in the data folder. The folder belongs to a less privileged user, who
// could have put a link in the file's place: root must not write through it.
func writeOwn(file string, flag int, text string) error {
	f, err := os.OpenFile(file, flag|os.O_WRONLY|noFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// socketDir is the data folder, or nothing where the path of the socket would not fit into a socket
// address (104 bytes on macOS, the smallest, with its final NUL) or would need quoting in a list.
func socketDir(dataDir string) string {
	if len(filepath.Join(dataDir, ".s.PGSQL.65535")) > 103 || strings.ContainsAny(dataDir, `,"'`) {
		return ""
	}
	return dataDir
}
