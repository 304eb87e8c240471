//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package localpg

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// noFollow refuses to open a link.
const noFollow = syscall.O_NOFOLLOW

// identity is the system user that the server runs as. A nil identity is the current one.
type identity struct {
	name     string
	uid, gid uint32
}

// serverIdentity decides who runs the server of a data folder. Only root needs, and is able, to
// choose.
func serverIdentity(cfg Config, dataDir string) (*identity, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if cfg.User != "" {
		id, err := lookupUser(cfg.User)
		if err == nil && id.uid == 0 {
			err = fmt.Errorf("user %s is root, as which PostgreSQL refuses to run", cfg.User)
		}
		return id, err
	}
	if info, err := os.Stat(filepath.Join(dataDir, "PG_VERSION")); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &identity{name: "with id " + strconv.Itoa(int(st.Uid)), uid: st.Uid, gid: st.Gid}, nil
		}
	}
	if id, err := lookupUser("postgres"); err == nil {
		return id, nil
	}
	id, err := lookupUser("nobody")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: "+
			"make one, or name one in Config.User: %w", err)
	}
	return id, nil
}

func lookupUser(name string) (*identity, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return &identity{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
}

// credential also drops root's other groups, which is what an empty list of groups means.
func (id *identity) credential() *syscall.Credential {
	if id == nil {
		return nil
	}
	return &syscall.Credential{Uid: id.uid, Gid: id.gid}
}

// giveTo makes the identity the owner of one file.
func giveTo(path string, id *identity) error {
	if id == nil {
		return nil
	}
	return os.Lchown(path, int(id.uid), int(id.gid))
}

// giveTree makes the identity the owner of a folder and all in it, if it is not already. Lchown, so
// that a link in the folder can't give away what lies outside.
func giveTree(dir string, id *identity) error {
	if id == nil {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == id.uid {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return giveTo(path, id)
	})
}

// reachable tells whether the identity may enter every folder on the way to a path, and names the
// first that is closed to it. PostgreSQL itself would only say "Permission denied".
func reachable(path string, id *identity) error {
	if id == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		need := fs.FileMode(0o001)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case st.Uid == id.uid:
				need = 0o100
			case st.Gid == id.gid:
				need = 0o010
			}
		}
		if info.Mode().Perm()&need == 0 {
			return fmt.Errorf("PostgreSQL can't run as root, so it runs as user %s, who may not enter %s (%v) on the way to %s: "+
				"name a folder elsewhere, or chmod o+x %s", id.name, dir, info.Mode(), path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
