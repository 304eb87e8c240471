package outbox

import _ "embed" // the statements

var (
	//go:embed sql/relay_lease_find.sql
	leaseFindSQL string
	//go:embed sql/relay_lease_take.sql
	leaseTakeSQL string
	//go:embed sql/relay_lease_renew.sql
	leaseRenewSQL string
	//go:embed sql/relay_lease_release.sql
	leaseReleaseSQL string
	//go:embed sql/park.sql
	parkSQL string
	//go:embed sql/park_behind.sql
	parkBehindSQL string
	//go:embed sql/parked_keys.sql
	parkedKeysSQL string
	//go:embed sql/parked_list.sql
	parkedListSQL string
	//go:embed sql/parked_key.sql
	parkedKeySQL string
	//go:embed sql/parked_first.sql
	parkedFirstSQL string
	//go:embed sql/parked_next.sql
	parkedNextSQL string
	//go:embed sql/parked_redriven.sql
	parkedRedrivenSQL string
	//go:embed sql/parked_discard.sql
	parkedDiscardSQL string
	//go:embed sql/parked_discarded.sql
	parkedDiscardedSQL string
	//go:embed sql/parked_state.sql
	parkedStateSQL string
	//go:embed sql/parked_behind.sql
	parkedBehindSQL string
	//go:embed sql/parked_forget.sql
	parkedForgetSQL string
	//go:embed sql/parked_failed.sql
	parkedFailedSQL string
)
