package jobs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestZZBench(t *testing.T) {
	old, err := os.ReadFile("/tmp/old17.sql")
	if err != nil {
		t.Fatal(err)
	}
	dbs := []*pgtest.DB{pgtest.New(t), pgtest.New(t)}
	dbs[0].Exec(t, strings.Replace(string(old), "create function", "create or replace function", 1))
	times := [2][]time.Duration{}
	for round := range 12 {
		for i, db := range dbs {
			q := newQueue(t, db.Pool)
			var reqs []commands.EnqueueOptions
			for k := range 1000 {
				reqs = append(reqs, idempotent(fmt.Sprint(round, " ", k), `{"a":1}`, time.Hour))
			}
			s := time.Now()
			if _, err := q.EnqueueMany(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
			times[i] = append(times[i], time.Since(s))
		}
	}
	t.Log("old", times[0])
	t.Log("new", times[1])
}
