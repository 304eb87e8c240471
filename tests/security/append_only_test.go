package security_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// appendOnly are the relations that hold the ledger, with each partition that one of them has or is.
func appendOnly(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return column(t, db.Pool, `
		select distinct r.relation::text
		from unnest(array['daybook.event', 'daybook.ledger_order']::regclass[]) as named (relation)
		cross join lateral (
			select named.relation
			union
			select p.relid from pg_partition_tree(named.relation) as p
		) as r
		order by 1`)
}

// alterations are the ways in which a statement can alter or remove rows of a relation.
func alterations(relation string) map[string]string {
	// An identity column can't be set to anything, so another one is.
	column := "kind"
	if strings.Contains(relation, "order") {
		column = "sequenced_at"
	}
	r := strings.NewReplacer("RELATION", relation, "COLUMN", column)
	all := map[string]string{}
	for name, statement := range map[string]string{
		"update":           `update RELATION set COLUMN = COLUMN`,
		"update only":      `update only RELATION set COLUMN = COLUMN`,
		"update of no row": `update RELATION set COLUMN = COLUMN where false`,
		"update from":      `update RELATION as r set COLUMN = r.COLUMN from RELATION as s where r.event_id = s.event_id`,
		"update in a CTE":  `with altered as (update RELATION set COLUMN = COLUMN returning 1) select count(*) from altered`,
		"delete":           `delete from RELATION`,
		"delete only":      `delete from only RELATION`,
		"delete of no row": `delete from RELATION where event_id = -1`,
		"delete using":     `delete from RELATION as r using RELATION as s where r.event_id = s.event_id`,
		"delete in a CTE":  `with gone as (delete from RELATION returning *) select count(*) from gone`,
		"truncate":         `truncate RELATION`,
		"truncate only":    `truncate only RELATION`,
		"truncate cascade": `truncate RELATION restart identity cascade`,
		"merge, update":    `merge into RELATION as r using (select 1) as s on true when matched then update set COLUMN = r.COLUMN`,
		"merge, delete":    `merge into RELATION as r using (select 1) as s on true when matched then delete`,
		"in a DO block":    `do $$ begin delete from RELATION; end $$`,
		"dynamic":          `do $$ begin execute 'delete from RELATION'; end $$`,
		"through a cursor": `declare c cursor for select * from RELATION for update; fetch c; delete from RELATION where current of c`,
	} {
		all[name] = r.Replace(statement)
	}
	return all
}

func TestLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, commands.Config{Pool: db.Pool})
	if _, err := queue.Enqueue(t.Context(), request(ledger.NewKey("key"), 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	before := everything(t, db)
	relations := appendOnly(t, db)
	if len(relations) < 2 {
		t.Fatalf("relations: %v", relations)
	}
	tried := 0
	for _, relation := range relations {
		for _, role := range []string{"", "daybook_owner", "daybook_app", "daybook_relay", "daybook_operator"} {
			for _, replica := range []string{"origin", "local", "replica"} {
				for name, statement := range alterations(relation) {
					tried++
					wantRefused(t, db, fmt.Sprintf("%s as %q, %s, %s", relation, role, replica, name),
						`set session_replication_role = `+replica, `set role `+orNone(role), statement)
				}
			}
		}
	}
	if tried != len(relations)*5*3*18 {
		t.Errorf("%d ways tried", tried)
	}
	if after := everything(t, db); after != before {
		t.Errorf("the ledger was %s and is %s", before, after)
	}
}

func orNone(role string) string {
	if role == "" {
		return "none"
	}
	return role
}

// wantRefused runs statements in a session of their own, in one transaction; the last must be refused as a lack of
// privilege, be it PostgreSQL's or the trigger's.
func wantRefused(t *testing.T, db *pgtest.DB, what string, statements ...string) {
	t.Helper()
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What SET did in it goes with it.
	defer func() { _ = tx.Rollback(context.Background()) }()
	for i, statement := range statements {
		_, err := tx.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		if i < len(statements)-1 {
			if err != nil {
				t.Fatalf("%s: %s: %v", what, statement, err)
			}
		} else if code(err) != "42501" {
			t.Errorf("%s: %s: %v, want it refused", what, statement, err)
		}
	}
}

// everything is a digest of all that the ledger holds.
func everything(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return column(t, db.Pool, `
		select format('%s events, %s positions, %s', (select count(*) from daybook.event), (select count(*) from daybook.ledger_order),
			(select md5(string_agg(e::text || o::text, '|' order by o.position))
			from daybook.event as e join daybook.ledger_order as o using (event_id)))`)[0]
}

// A superuser can make objects that alter rows on the way. The trigger is there too.
func TestLedgerIsAppendOnlyByDetours(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, commands.Config{Pool: db.Pool})
	if _, err := queue.Enqueue(t.Context(), request(ledger.NewKey("key"), 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	for name, statements := range map[string][]string{
		"an updatable view": {
			`create view public.v as select * from daybook.event`, `update public.v set kind = 'x'`,
		},
		"a rule": {
			`create table public.t (i int)`,
			`create rule r as on insert to public.t do also delete from daybook.ledger_order`,
			`alter table public.t enable always rule r`,
			`insert into public.t values (1)`,
		},
		"a rule on the table itself": {
			`create rule r as on insert to daybook.ledger_order do instead delete from daybook.event`,
			`alter table daybook.ledger_order enable always rule r`,
			`insert into daybook.ledger_order values (9, 9, now(), '')`,
		},
		"insert on conflict do update": {
			`insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash) values (1, 1, now(), '')
			on conflict (position) do update set event_id = 7`,
		},
		"insert on conflict do update, of the event": {
			`insert into daybook.event (event_id, recorded_at, kind, body) overriding system value select event_id, now(), 'x', 'null' from daybook.event
			on conflict (event_id) do update set kind = 'x'`,
		},
		"a foreign key that cascades": {
			`create table public.parent (id bigint primary key)`,
			`insert into public.parent select event_id from daybook.event`,
			`alter table daybook.event add constraint f foreign key (event_id) references public.parent on delete cascade`,
			`delete from public.parent`,
		},
		"a function with the owner's rights": {
			`create function public.f() returns void language sql security definer as 'delete from daybook.event'`,
			`alter function public.f() owner to daybook_owner`,
			`grant usage on schema public to daybook_owner`,
			`select public.f()`,
		},
		"a trigger of another table": {
			`create function public.f() returns trigger language plpgsql as $$ begin delete from daybook.event; return null; end $$`,
			`create trigger t after insert on daybook.cursor for each row execute function public.f()`,
			`alter table daybook.cursor enable always trigger t`,
			`insert into daybook.cursor (name, epoch, position) values ('c', 1, 0)`,
		},
		"truncate of a parent in a foreign key": {
			`create table public.child (id bigint references daybook.event)`,
			`truncate daybook.event, public.child`,
		},
	} {
		wantRefused(t, db, name, statements...)
		if name == "a foreign key that cascades" {
			continue // as a replica nothing cascades
		}
		wantRefused(t, db, name+", as a replica", append([]string{`set session_replication_role = replica`}, statements...)...)
	}
}

// The triggers fire whatever session_replication_role says, on each relation of the ledger.
func TestAppendOnlyTriggersAreAlwaysEnabled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, relation := range appendOnly(t, db) {
		got := column(t, db.Pool, `
			select format('enabled %s, type %s, %s', t.tgenabled, t.tgtype, t.tgfoid::regproc)
			from pg_trigger as t
			where t.tgrelid = $1::text::regclass and not t.tgisinternal`, relation)
		// 2 before, 8 delete, 16 update, 32 truncate, and per statement.
		if len(got) != 1 || got[0] != "enabled A, type 58, daybook.refuse_change" {
			t.Errorf("triggers of %s: %v", relation, got)
		}
	}
}
