package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Config says what to start. The zero value is a cluster for the current user, in a folder of its
// own, on a free port, tied to this process.
type Config struct {
	// DataDir is the data folder. It is made, with a new cluster in it, when it is missing or empty.
	// Empty means DefaultDataDir.
	DataDir string
	// BinDir is the folder of the server binaries. Empty means what Find returns, or FindMajor when
	// the data folder has a cluster already.
	BinDir string
	// Port to listen on. 0 means a free one, chosen at each Start and kept by Restart.
	Port int
	// Settings of the server, as in postgresql.conf but unquoted: {"fsync": "off"}. They replace
	// those of the last Start and give way to ALTER SYSTEM. None means PostgreSQL's defaults.
	Settings map[string]string
	// User is the system user to run the server as, when started by root. Empty means the owner of
	// the existing cluster, else "postgres", else "nobody". Not used when not started by root.
	User string
	// Detached lets the server live on after this process. False ties it to this process.
	Detached bool
	// StartTimeout bounds how long the server may take to accept connections, recovery from a crash
	// included. 0 means a minute.
	StartTimeout time.Duration
}

// chosen are the settings that localpg gives on the command line, where nothing can override them.
var chosen = []string{"port", "listen_addresses", "unix_socket_directories", "data_directory", "config_file"}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$`)

// Validate tells what is wrong with the configuration, all at once.
func (c Config) Validate() error {
	var errs []error
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d is not between 0 and 65535", c.Port))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("start timeout %v is negative", c.StartTimeout))
	}
	for name, value := range c.Settings {
		if !settingName.MatchString(name) {
			errs = append(errs, fmt.Errorf("%q is not the name of a setting", name))
		}
		if strings.ContainsAny(value, "\x00\r\n") {
			errs = append(errs, fmt.Errorf("the value of setting %s is not one line", name))
		}
		for _, c := range chosen {
			if strings.EqualFold(name, c) {
				errs = append(errs, fmt.Errorf("setting %s is chosen by localpg", name))
			}
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("localpg: invalid configuration: %w", errors.Join(errs...))
	}
	return nil
}

// DefaultDataDir is the data folder used when Config names none: below the user's cache folder, or
// for root below /var/lib, because the user that the server runs as can't enter root's home.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/daybook/cluster", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("localpg: no default data folder, name one: %w", err)
	}
	return filepath.Join(cache, "daybook", "cluster"), nil
}
