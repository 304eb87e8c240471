package outbox

import (
	"embed"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed schemas/*.json
var schemas embed.FS

// Schema returns the JSON Schema (2020-12) of the bodies of a kind, version 1, and whether there is one. It admits
// members that it does not name: later versions of Daybook may add optional ones, and readers pass over them.
func Schema(kind ledger.Kind) ([]byte, bool) {
	schema, err := schemas.ReadFile("schemas/" + string(kind) + ".json")
	return schema, err == nil
}
