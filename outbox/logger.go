package outbox

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// watermillLogger hands Watermill's messages on to slog: errors as they are, everything else at Debug, because what
// Watermill calls Info is said several times for each subscription. Trace is dropped: it prints arguments.
type watermillLogger struct {
	logger *slog.Logger
}

func (l watermillLogger) Error(msg string, err error, fields watermill.LogFields) {
	l.With(fields).(watermillLogger).logger.Error("daybook: watermill: "+msg, slog.Any("error", err))
}

func (l watermillLogger) Info(msg string, fields watermill.LogFields) { l.Debug(msg, fields) }

func (l watermillLogger) Debug(msg string, fields watermill.LogFields) {
	l.With(fields).(watermillLogger).logger.Debug("daybook: watermill: " + msg)
}

func (watermillLogger) Trace(string, watermill.LogFields) {}

func (l watermillLogger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	if len(fields) == 0 {
		return l
	}
	attributes := make([]any, 0, len(fields))
	for name, value := range fields {
		attributes = append(attributes, slog.Any(name, value))
	}
	return watermillLogger{l.logger.With(attributes...)}
}
