package security_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// tables says who may do what with each table and view, column by column where not with all of it. A table that is
// not named here is nobody's. What daybook_app may do is at the end of this list: nothing.
var tables = map[string]string{
	"event":              "relay: SELECT",
	"event_event_id_seq": "relay: SELECT",
	"feed":               "operator: SELECT, relay: SELECT",
	"ledger_order":       "relay: SELECT",
	"sequencer":          "operator: SELECT, relay: SELECT",
	"sequencer_gap":      "operator: SELECT, relay: SELECT",
	"cursor":             "operator: SELECT, relay: DELETE INSERT SELECT UPDATE",
	"meta":               "operator: SELECT, relay: SELECT",
	"migration":          "app: SELECT, operator: SELECT, relay: SELECT",
	"projection":         "operator: SELECT, relay: INSERT SELECT UPDATE",
	"view_conflict":      "operator: SELECT, relay: DELETE INSERT SELECT UPDATE",
	"view_decision_rate": "operator: SELECT, relay: DELETE INSERT SELECT UPDATE",
	"view_job":           "operator: SELECT, relay: DELETE INSERT SELECT UPDATE",
	"view_key":           "relay: DELETE INSERT SELECT UPDATE",
	"relay_lease":        "operator: SELECT, relay: INSERT SELECT UPDATE",
	"parked":             "relay: DELETE INSERT SELECT UPDATE",
	"debezium_outbox":    "relay: SELECT",
	"epoch":              "operator: SELECT, relay: SELECT",
	"runner_beat":        "operator: DELETE SELECT, relay: DELETE INSERT SELECT UPDATE",
	"purge":              "operator: SELECT",
	"redrive":            "operator: SELECT",
}

// hidden are the columns that daybook_operator must not read, whoever grants it what: payloads, whole hashes, and
// what workers say about their payloads.
var hidden = []string{
	"job.payload", "job.key_hash", "job.last_error", "event.key_hash", "event.body", "binding.key_hash", "binding.other_hashes",
	"binding.alias_of", "rejection.key_hash", "view_key.key_hash",
	"parked.key_hash", "parked.order_key",
}

// executable says who may call each function; one that is not named here is the owner's alone.
var executable = map[string]string{
	"clock":            "app, operator, relay",
	"enqueue":          "app",
	"enqueue_many":     "app",
	"record_rejection": "app",
	"claim_jobs":       "app",
	"heartbeat_jobs":   "app",
	"complete_jobs":    "app",
	"fail_job":         "app",
	"expire_leases":    "app",
	"expire_bindings":  "app",
	"prune_jobs":       "app",
	"forget_requests":  "app",
	"cancel_job":       "app, operator",
	"run_job_now":      "app, operator",
	"release_key":      "app, operator",
	"purge_jobs":       "app, operator",
	"redrive_job":      "app, operator",
	"failed_jobs":      "app, operator",
	"sequence":         "relay",
	"sweep":            "relay",
	"read_events":      "relay",
	"leaf_hash":        "relay",
	"position_before":  "operator, relay",
	"unsequenced":      "operator, relay",
	"explain_bindings": "operator",
	"explain_events":   "operator",
	"begin_epoch":      "operator",
	"carry_cursors":    "operator",
	"raise_event_id":   "operator",
	"follow_timelines": "operator",
	"check_life":       "relay",
	"found_life":       "operator, relay",
	"diagnose":         "operator, relay",
	"compare_bindings": "operator, relay",
	"compare_jobs":     "operator, relay",
	"instant":          "operator, relay",
	"key_digest":       "operator, relay",
}

func TestPrivilegesOnTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	got := map[string]string{}
	for _, line := range column(t, db.Pool, `
		select format('%s|%s', relname, string_agg(format('%s: %s', role, privileges), ', ' order by role))
		from (
			select c.relname, coalesce(nullif(replace(a.grantee::regrole::text, 'daybook_', ''), '-'), 'PUBLIC') as role,
				string_agg(a.privilege_type || case when a.is_grantable then '!' else '' end, ' ' order by a.privilege_type) as privileges
			from pg_class as c
			cross join lateral aclexplode(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))) as a
			where c.relnamespace = 'daybook'::regnamespace
				and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
				and a.grantee <> c.relowner
			group by 1, 2
		) as granted
		group by relname`) {
		name, granted, _ := strings.Cut(line, "|")
		got[name] = granted
	}
	if diff := cmp.Diff(tables, got); diff != "" {
		t.Errorf("privileges on tables, views and sequences (-want +got):\n%s", diff)
	}

	// What roles have by way of columns, other roles and PUBLIC counts as well.
	readable := func(role string) (all []string) {
		return column(t, db.Pool, `
			select c.relname || '.' || a.attname
			from pg_class as c
			join pg_attribute as a on a.attrelid = c.oid
			where c.relnamespace = 'daybook'::regnamespace
				and c.relkind in ('r', 'p', 'v', 'm', 'f')
				and a.attnum > 0
				and has_column_privilege($1, c.oid, a.attnum, 'select, insert, update, references')`, role)
	}
	operator := readable("daybook_operator")
	for _, name := range hidden {
		if slices.Contains(operator, name) {
			t.Errorf("an operator may see %s", name)
		}
	}
	if !slices.Contains(operator, "view_key.key_digest") {
		t.Errorf("an operator does not even see the digest of a key, so this test shows nothing: %v", operator)
	}
	for _, name := range readable("daybook_app") {
		if !strings.HasPrefix(name, "migration.") {
			t.Errorf("an application may use %s", name)
		}
	}
}

func TestPrivilegesOnFunctionsAndSchemas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	got := map[string]string{}
	for _, line := range column(t, db.Pool, `
		select format('%s|%s', proname, string_agg(distinct role, ', ' order by role))
		from (
			select p.proname, coalesce(nullif(replace(a.grantee::regrole::text, 'daybook_', ''), '-'), 'PUBLIC')
				|| case when a.is_grantable then '!' else '' end as role
			from pg_proc as p
			cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
			where p.pronamespace in ('daybook'::regnamespace, 'daybook_rebuild'::regnamespace, 'daybook_old'::regnamespace)
				and a.grantee <> p.proowner
		) as granted
		group by proname`) {
		name, granted, _ := strings.Cut(line, "|")
		got[name] = granted
	}
	if diff := cmp.Diff(executable, got); diff != "" {
		t.Errorf("who may execute each function (-want +got):\n%s", diff)
	}

	schemas := column(t, db.Pool, `
		select format('%s of %s: %s %s', n.nspname, n.nspowner::regrole,
			coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'), a.privilege_type)
		from pg_namespace as n
		cross join lateral aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) as a
		where n.nspname like 'daybook%' and a.grantee <> n.nspowner
		order by 1`)
	want := []string{
		"daybook of daybook_owner: daybook_app USAGE",
		"daybook of daybook_owner: daybook_operator USAGE",
		"daybook of daybook_owner: daybook_relay USAGE",
	}
	if diff := cmp.Diff(want, schemas); diff != "" {
		t.Errorf("privileges on schemas (-want +got):\n%s", diff)
	}
	roles := column(t, db.Pool, `
		select format('%s login %s superuser %s createrole %s createdb %s replication %s bypassrls %s, member of %s', r.rolname,
			r.rolcanlogin, r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolreplication, r.rolbypassrls,
			(select count(*) from pg_auth_members as m where m.member = r.oid))
		from pg_roles as r
		where r.rolname in ('daybook_owner', 'daybook_app', 'daybook_relay', 'daybook_operator')`)
	if len(roles) != 4 {
		t.Errorf("roles: %v", roles)
	}
	for _, role := range roles {
		if !strings.HasSuffix(role, " login f superuser f createrole f createdb f replication f bypassrls f, member of 0") {
			t.Error(role)
		}
	}
}

// The catalog says so; a login of each kind tries it.
func TestPrivilegesTried(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	everyTable := column(t, db.Pool, `
		select c.relname from pg_class as c
		where c.relnamespace = 'daybook'::regnamespace and c.relkind in ('r', 'p')`)
	if len(everyTable) < 15 {
		t.Fatalf("tables: %v", everyTable)
	}
	for _, role := range []string{"daybook_app", "daybook_relay", "daybook_operator"} {
		pool, name := login(t, db, role)
		short := strings.TrimPrefix(role, "daybook_")
		for _, table := range everyTable {
			for verb, statement := range map[string]string{
				"SELECT": "select from daybook.%s", "INSERT": "insert into daybook.%s default values",
				"DELETE": "delete from daybook.%s", "TRUNCATE": "truncate daybook.%s",
			} {
				_, err := pool.Exec(t.Context(), "explain "+fmt.Sprintf(statement, table))
				if verb == "TRUNCATE" {
					_, err = pool.Exec(t.Context(), fmt.Sprintf(statement, table))
				}
				may := false
				for _, grant := range strings.Split(tables[table], ", ") {
					who, what, _ := strings.Cut(grant, ": ")
					may = may || who == short && slices.Contains(strings.Fields(what), verb)
				}
				// Being refused for lack of a privilege is the first thing that happens to a statement.
				if role == "daybook_operator" && verb == "SELECT" && (table == "view_key" || table == "parked") {
					may = true // all columns but the hash
				}
				if refused := code(err) == "42501"; refused == may {
					t.Errorf("%s, %s on %s: %v", role, verb, table, err)
				}
			}
		}
		for _, statement := range []string{
			`create table daybook.mine ()`, `create function daybook.mine() returns int language sql as 'select 1'`,
			`set role daybook_owner`, `alter table daybook.event disable trigger all`, `drop table daybook.event`,
			`create trigger mine before insert on daybook.event execute function suppress_redundant_updates_trigger()`,
			`select nextval('daybook.event_event_id_seq')`, `select setval('daybook.event_event_id_seq', 1)`,
			`select daybook.unbind(null, null, null, null, null)`, `select daybook.merge_gaps(1, 1)`,
			`create or replace function daybook.clock() returns timestamptz language sql volatile return now()`,
			`grant daybook_owner to ` + `"` + name + `"`,
		} {
			if _, err := pool.Exec(t.Context(), statement); code(err) != "42501" {
				t.Errorf("%s, %s: %v", role, statement, err)
			}
		}
	}
}
