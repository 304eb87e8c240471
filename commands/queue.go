package commands

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// Bounds of Config.MaxPayloadBytes.
const (
	DefaultMaxPayloadBytes = 1 << 20
	LimitMaxPayloadBytes   = 16 << 20
)

// Config is what a Queue is made of. The zero value of each field but Pool is its documented default.
type Config struct {
	// Pool is where calls without a transaction of the caller's run. It may be nil where only the Tx twins are used;
	// any other call then returns an error.
	Pool *pgxpool.Pool
	// Keys hashes keys; the zero value is plain SHA-256. Use [ledger.NewHMACKeys] where keys can be guessed.
	Keys ledger.Keys
	// HidePreviews stores an empty preview for each key; default: what [ledger.KeyPreview] shows.
	HidePreviews bool
	// MaxPayloadBytes bounds a payload as PostgreSQL renders it, in bytes: 1 to 16 MiB; default 1 MiB.
	MaxPayloadBytes int
	// Logger gets conflicts at Info and every other decision at Debug, with digests and never a key. Default: none.
	Logger *slog.Logger
	// MeterProvider and TracerProvider; default: OpenTelemetry's global ones.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

// Queue sends requests. It is safe for concurrent use and holds nothing but its configuration.
type Queue struct {
	pool            *pgxpool.Pool
	keys            ledger.Keys
	showPreviews    bool
	maxPayloadBytes int
	telemetry       *telemetry
}

// NewQueue checks the configuration. It does not touch the database.
func NewQueue(config Config) (*Queue, error) {
	maxPayloadBytes := orDefault(config.MaxPayloadBytes, DefaultMaxPayloadBytes)
	if maxPayloadBytes < 1 || maxPayloadBytes > LimitMaxPayloadBytes {
		return nil, fmt.Errorf("daybook: MaxPayloadBytes is %d, must be 1 to %d", maxPayloadBytes, LimitMaxPayloadBytes)
	}
	telemetry, err := newTelemetry(config)
	if err != nil {
		return nil, err
	}
	return &Queue{
		pool:            config.Pool,
		keys:            config.Keys,
		showPreviews:    !config.HidePreviews,
		maxPayloadBytes: maxPayloadBytes,
		telemetry:       telemetry,
	}, nil
}

var errNoPool = errors.New("daybook: this Queue has no Pool; set Config.Pool or use the Tx twin of the call")
