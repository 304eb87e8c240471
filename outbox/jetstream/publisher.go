package jetstream

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// Defaults of a [Config].
const (
	DefaultName       = "daybook"
	DefaultAckTimeout = 5 * time.Second
	// DefaultDuplicates is for how long a stream made by this package recognises a message that comes again.
	DefaultDuplicates = 2 * time.Minute
)

// reconnectWait is the pause between two attempts to connect again.
const reconnectWait = 250 * time.Millisecond

// Config is what a Publisher is made of. URL is required; the zero value of every other field is its documented default.
type Config struct {
	// URL names the server, or several of a cluster, separated by commas: nats://host:port or tls://host:port. User and
	// password may be in it; no error repeats them.
	URL string
	// CredentialsFile is a NATS credentials file; default: none.
	CredentialsFile string
	// Name is the connection's name, as the server's monitoring shows it. Default "daybook".
	Name string
	// AckTimeout is how long Publish waits for JetStream to acknowledge. Default 5 s.
	AckTimeout time.Duration
	// CreateStream names a stream to make, for Subjects, where there is none of that name; an existing one stays as it is.
	// Default: none is made, and publishing to a subject that no stream has fails.
	CreateStream string
	// Subjects of a stream that is made. Default: "daybook.events.>".
	Subjects []string
	// Duplicates is for how long such a stream recognises a message that comes again, and so the longest absence of a
	// relay after which nothing is stored twice. Default 2 min.
	Duplicates time.Duration
}

// Publisher is a Watermill message.Publisher. It is safe for concurrent use.
type Publisher struct {
	conn *nats.Conn
	next *watermillnats.Publisher
}

// NewPublisher connects. It returns an error where the server cannot be reached now; later it connects again as often as
// it takes, and Publish fails meanwhile.
func NewPublisher(config Config) (*Publisher, error) {
	config = config.withDefaults()
	if err := checkURL(config.URL); err != nil {
		return nil, err
	}
	if config.AckTimeout < 0 || config.Duplicates < 0 {
		return nil, errors.New("daybook: jetstream.Config: AckTimeout and Duplicates must not be negative")
	}
	options := []nats.Option{
		nats.Name(config.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		// Nothing is kept for when the server is back: whoever publishes tries again, and in order.
		nats.ReconnectBufSize(-1),
	}
	if config.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(config.CredentialsFile))
	}
	conn, err := nats.Connect(config.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("daybook: connect to NATS: %w", err)
	}
	if err := config.createStream(conn); err != nil {
		conn.Close()
		return nil, err
	}
	next, err := watermillnats.NewPublisherWithNatsConn(conn, watermillnats.PublisherPublishConfig{
		Marshaler:         &watermillnats.NATSMarshaler{},
		SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{
			ConnectOptions: []nats.JSOpt{nats.MaxWait(config.AckTimeout)},
			// The UUID as Nats-Msg-Id.
			TrackMsgId: true,
		},
	}, nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("daybook: use JetStream: %w", err)
	}
	return &Publisher{conn: conn, next: next}, nil
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = DefaultAckTimeout
	}
	if len(c.Subjects) == 0 {
		c.Subjects = []string{"daybook.events.>"}
	}
	if c.Duplicates == 0 {
		c.Duplicates = DefaultDuplicates
	}
	return c
}

// checkURL refuses what is not a NATS URL, without repeating it: it may hold a password.
func checkURL(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls"}, u.Scheme) {
			return errors.New("daybook: jetstream.Config: URL must be like nats://host:4222 or tls://host:4222")
		}
	}
	return nil
}

func (c Config) createStream(conn *nats.Conn) error {
	if c.CreateStream == "" {
		return nil
	}
	js, err := conn.JetStream(nats.MaxWait(c.AckTimeout))
	if err != nil {
		return fmt.Errorf("daybook: use JetStream: %w", err)
	}
	_, err = js.StreamInfo(c.CreateStream)
	if errors.Is(err, nats.ErrStreamNotFound) {
		_, err = js.AddStream(&nats.StreamConfig{Name: c.CreateStream, Subjects: c.Subjects, Duplicates: c.Duplicates})
	}
	if err != nil {
		return fmt.Errorf("daybook: make the stream %s: %w", c.CreateStream, err)
	}
	return nil
}

// Publish publishes messages to the subject that topic names, one after another. It returns nil when JetStream has stored
// all of them, or has recognised them as stored already.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return p.next.Publish(topic, messages...)
}

// Close closes the connection.
func (p *Publisher) Close() error { return p.next.Close() }

// streamMessageTooLarge is JetStream's error code for a message larger than its stream allows.
const streamMessageTooLarge = 10054

// Poison says whether an error of Publish is the message's own: it is too large, or cannot be a message at all. It is made
// for RelayConfig.Poison. Whatever else goes wrong (no stream for the subject, no room, no permission) an operator can
// put right, and then the same message is taken.
func Poison(err error) bool {
	var api *nats.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == streamMessageTooLarge
	}
	for _, own := range []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrInvalidMsg} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

var _ message.Publisher = (*Publisher)(nil)
