package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/daybook-go/daybook/migrations"
)

// statement is the broken function, as a statement that puts it over the real one.
func (m mutation) statement(all []migrations.Migration) (string, error) {
	for _, migration := range all {
		if migration.Version != m.version {
			continue
		}
		if n := strings.Count(migration.SQL, m.before); n != 1 {
			return "", fmt.Errorf("its text is in migration %d %d times, not once; bring list.go up to date", m.version, n)
		}
		at := strings.Index(migration.SQL, m.before)
		return replacement(migration.SQL, at, m)
	}
	return "", fmt.Errorf("there is no migration %d", m.version)
}

func replacement(sql string, at int, m mutation) (string, error) {
	const create, end = "\ncreate function ", "\n$$;"
	from := strings.LastIndex(sql[:at], create)
	to := strings.Index(sql[at:], end)
	if from < 0 || to < 0 {
		return "", errors.New("its text is not inside a function")
	}
	function := sql[from+1 : at+to+len(end)]
	function = strings.Replace(function, "create function ", "create or replace function ", 1)
	return "set role daybook_owner;\n" + strings.Replace(function, m.before, m.after, 1) + "\n", nil
}
