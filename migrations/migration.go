package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed sql/*.sql
var files embed.FS

// Migration is one step of the schema.
type Migration struct {
	// Version is the number that the file begins with; versions ascend.
	Version int
	// Name is the rest of the file's name.
	Name string
	// SQL is the file's text.
	SQL string
	// Checksum is the SHA-256 of the text, in hex.
	Checksum string
}

// All returns the migrations in the order of their versions.
func All() ([]Migration, error) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("daybook: list migrations: %w", err)
	}
	all := make([]Migration, 0, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("daybook: read migration %s: %w", name, err)
		}
		number, title, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("daybook: migration %s does not begin with a number", name)
		}
		if len(all) > 0 && version <= all[len(all)-1].Version {
			return nil, fmt.Errorf("daybook: migration %s has a number that is taken", name)
		}
		sum := sha256.Sum256(text)
		all = append(all, Migration{Version: version, Name: title, SQL: string(text), Checksum: hex.EncodeToString(sum[:])})
	}
	return all, nil
}

// Hash returns a hash over all migrations: two builds with the same hash make the same schema.
func Hash() (string, error) {
	all, err := All()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, m := range all {
		_, _ = fmt.Fprintln(sum, m.Version, m.Name, m.Checksum) // a hash takes everything
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
