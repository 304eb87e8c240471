package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func typeOf(t testing.TB, msg *message.Message) string {
	t.Helper()
	var body struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(msg.Payload, &body); err != nil {
		t.Fatal(err)
	}
	return body.Type
}
