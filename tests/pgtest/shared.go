package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
)

// The shared cluster lives in a folder of these files. Every lock ends with the process that holds
// it.
const (
	dataName   = "data"        // the cluster
	startLock  = "start.lock"  // held while the server is started or stopped
	leaseLock  = "lease.lock"  // shared by the test processes that use the server
	keeperLock = "keeper.lock" // held by the one keeper
	keeperLog  = "keeper.log"  // what it has to say
)

// shared is this process's hold on the shared cluster.
type shared struct {
	server *localpg.Server
	lease  *fileLock
}

// sharedSettings trade durability for speed, and make room for many tests at once.
func sharedSettings(bins localpg.Binaries) map[string]string {
	settings := map[string]string{
		"fsync":                     "off",
		"full_page_writes":          "off",
		"max_connections":           "300",
		"shared_buffers":            "256MB",
		"max_wal_size":              "1GB", // it may be kept in memory
		"max_prepared_transactions": "10",
		"autovacuum":                "on",
		// Kept in the data folder: a killed server leaves nothing outside of it, and whoever tidies
		// up /dev/shm, as systemd does when a user logs out, can't take away half of a running one.
		"dynamic_shared_memory_type": "mmap",
		"logging_collector":          "off",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"log_line_prefix":            "%m [%p] %a@%d ",
	}
	if bins.HasLibrary("pg_stat_statements") {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	return settings
}

// joinShared starts the shared cluster, or joins it where it runs, and sees to it that somebody
// will stop it.
func joinShared(ctx context.Context) (*shared, error) {
	bins, err := localpg.Find()
	if err != nil {
		return nil, err
	}
	settings := sharedSettings(bins)
	dir, err := sharedFolder(bins, settings)
	if err != nil {
		return nil, fmt.Errorf("pgtest: a folder for the shared cluster: %w", err)
	}
	start, err := lockFile(ctx, filepath.Join(dir, startLock))
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	defer start.unlock()
	// Nobody can hold this one for longer than a moment: the keeper has it only together with the
	// lock that is held here.
	lease, err := shareFile(ctx, filepath.Join(dir, leaseLock))
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	server, err := startShared(ctx, filepath.Join(dir, dataName), bins, settings)
	if err == nil {
		err = ensureKeeper(dir)
	}
	if err != nil {
		lease.unlock()
		return nil, fmt.Errorf("pgtest: shared cluster in %s: %w", dir, err)
	}
	return &shared{server: server, lease: lease}, nil
}

func (s *shared) release() {
	s.lease.unlock()
}

// startShared is called with the start lock held. Data that no server runs on was left by one that
// was killed, since the keeper removes what it stops. It is not recovered: without fsync it may be
// damaged in ways that only a later test would notice.
func startShared(ctx context.Context, data string, bins localpg.Binaries, settings map[string]string) (*localpg.Server, error) {
	server, err := localpg.Attach(ctx, data)
	if !errors.Is(err, localpg.ErrNotRunning) {
		return server, err
	}
	if err := discard(data); err != nil {
		return nil, err
	}
	return localpg.Start(ctx, localpg.Config{DataDir: data, BinDir: bins.Dir, Settings: settings, Detached: true})
}

// discard removes a data folder, if there is one. It is moved aside first, since the last processes
// of a killed server may still write to it; what can't be removed now is removed by a later call.
func discard(data string) error {
	if _, err := os.Lstat(data); os.IsNotExist(err) {
		return nil
	}
	if err := os.Rename(data, fmt.Sprintf("%s.discarded-%d", data, time.Now().UnixNano())); err != nil {
		return err
	}
	// The pattern is well formed, which is all that Glob can complain about.
	discarded, _ := filepath.Glob(data + ".discarded-*")
	for _, dir := range discarded {
		_ = os.RemoveAll(dir)
	}
	return nil
}

// sharedFolder returns the folder of the cluster for these binaries and settings: with others it
// would be another cluster, so that two checkouts never fight over one.
func sharedFolder(bins localpg.Binaries, settings map[string]string) (string, error) {
	root, err := rootFolder()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, bins.Dir)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintln(hash, name, settings[name])
	}
	dir := filepath.Join(root, "pg"+bins.Version+"-"+hex.EncodeToString(hash.Sum(nil)[:4]))
	return dir, makePassable(dir)
}

// rootFolder returns the folder of everything that outlives a test process.
func rootFolder() (string, error) {
	if dir := os.Getenv("DAYBOOK_PGTEST_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	candidates := memoryFolders()
	if os.Geteuid() == 0 {
		// Not below root's home: the server runs as somebody else, who may not enter it.
		candidates = append(candidates, "/var/cache/daybook/pgtest")
	} else if cache, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, filepath.Join(cache, "daybook", "pgtest"))
	}
	// Where there is no home, or it is read-only.
	candidates = append(candidates, filepath.Join(os.TempDir(), ownName()))
	var errs []error
	for _, dir := range candidates {
		if err := makePassable(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// ownName is the name of this user's folder where all users have theirs.
func ownName() string {
	return fmt.Sprintf("daybook-pgtest-%d", os.Geteuid())
}

// makePassable makes a folder of our own that the server's user can pass through, whatever the umask.
func makePassable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// In a temporary folder anybody could have been there first.
	if err := checkOwner(dir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		info, err := os.Stat(d)
		if err != nil {
			return err
		}
		// Only what is ours: the parent may be the system's temporary folder.
		if checkOwner(d) == nil && info.Mode().Perm()&0o011 == 0 {
			if err := os.Chmod(d, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}
