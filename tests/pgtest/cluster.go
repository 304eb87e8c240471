package pgtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
)

// Cluster is a PostgreSQL server of one test, to be killed, restarted and searched as the test likes.
type Cluster struct {
	*localpg.Server

	source *source
}

// NewCluster makes and starts a cluster for this test alone, whatever server the environment names.
// It is durable, as PostgreSQL is by itself, unless the settings say otherwise. It is stopped and
// removed when the test ends.
func NewCluster(t testing.TB, settings map[string]string) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	folder, err := takeClusterFolder(ctx)
	if err != nil {
		t.Fatalf("a folder for a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := folder.remove(); err != nil {
			t.Error(err)
		}
	})
	all := map[string]string{
		"shared_buffers":             "32MB",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"dynamic_shared_memory_type": "mmap", // see sharedSettings
	}
	maps.Copy(all, settings)
	server, err := localpg.Start(ctx, localpg.Config{DataDir: filepath.Join(folder.dir, dataName), Settings: all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Stop(ctx, localpg.Immediate); err != nil {
			t.Error(err)
		}
	})
	source, err := newSource(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.close)
	return &Cluster{Server: server, source: source}
}

// New returns a migrated database in this cluster. Its pool is closed when the test ends.
func (c *Cluster) New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return newDB(ctx, t, c.source, true, opts)
}

// clusterFolder is a folder for one cluster, with a lock that shows it is in use.
type clusterFolder struct {
	dir  string
	lock *fileLock
}

// takeClusterFolder makes a folder for a cluster, and first removes those of killed processes.
func takeClusterFolder(ctx context.Context) (clusterFolder, error) {
	root, err := rootFolder()
	if err != nil {
		return clusterFolder{}, err
	}
	root = filepath.Join(root, "clusters")
	if err := makePassable(root); err != nil {
		return clusterFolder{}, err
	}
	// Without it, a folder that is made but not yet locked would look abandoned to another process.
	all, err := lockFile(ctx, filepath.Join(root, "lock"))
	if err != nil {
		return clusterFolder{}, err
	}
	defer all.unlock()
	// The pattern is well formed, which is all that Glob can complain about.
	found, _ := filepath.Glob(filepath.Join(root, "c*"))
	for _, dir := range found {
		if lock, err := tryLockFile(filepath.Join(dir, "lock")); err == nil {
			_ = clusterFolder{dir: dir, lock: lock}.remove() // the next one may be luckier
		}
	}
	dir, err := os.MkdirTemp(root, "c")
	if err != nil {
		return clusterFolder{}, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return clusterFolder{}, err
	}
	lock, err := tryLockFile(filepath.Join(dir, "lock"))
	return clusterFolder{dir: dir, lock: lock}, err
}

// remove removes the folder, and ends the server that may still run in it where the death of
// its parent does not.
func (f clusterFolder) remove() error {
	defer f.lock.unlock()
	if err := localpg.Kill(filepath.Join(f.dir, dataName)); err != nil {
		return err
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove a cluster: %w", err)
	}
	return nil
}
