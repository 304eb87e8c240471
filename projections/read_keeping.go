package projections

import "github.com/daybook-go/daybook/ledger"

const (
	// keptBytes and keptHashes are how much is asked for at once.
	keptBytes  = 64 << 10
	keptHashes = 512
	// keptTexts bounds the texts that are looked up: where each is new, looking is in vain.
	keptTexts = 1000
)

// keeping keeps the values of a page's events in few pieces of memory. An allocation for each would take a third of the
// time of reading, and the collector would have so many more to go through.
type keeping struct {
	piece  []byte // whose capacity is not used up
	hashes []ledger.KeyHash
	texts  map[string]string
}

// bytes keeps a value. Whoever appends to what it returns gets a copy.
func (k *keeping) bytes(value []byte) []byte {
	if len(value) > cap(k.piece)-len(k.piece) {
		k.piece = make([]byte, 0, max(keptBytes, len(value)))
	}
	from := len(k.piece)
	k.piece = append(k.piece, value...)
	return k.piece[from:len(k.piece):len(k.piece)]
}

// hash keeps a key's hash.
func (k *keeping) hash(value ledger.KeyHash) *ledger.KeyHash {
	if len(k.hashes) == cap(k.hashes) {
		k.hashes = make([]ledger.KeyHash, 0, keptHashes)
	}
	k.hashes = append(k.hashes, value)
	return &k.hashes[len(k.hashes)-1]
}

// text keeps a text of which there are few: kinds and scopes.
func (k *keeping) text(value []byte) string {
	if text, ok := k.texts[string(value)]; ok {
		return text
	}
	text := string(value)
	if k.texts == nil {
		k.texts = map[string]string{}
	}
	if len(k.texts) < keptTexts {
		k.texts[text] = text
	}
	return text
}
