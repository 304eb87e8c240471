package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/daybook-go/daybook/ledger"
)

// secretVariable names the environment variable that holds the HMAC secret where no flag names one.
const secretVariable = "DAYBOOK_SECRET"

// keyFlags say where a key comes from and how it is hashed.
type keyFlags struct {
	stdin       bool
	file, env   string
	secretFiles []string
	secretEnvs  []string
	alsoSHA256  bool
}

func (k *keyFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&k.stdin, "key-stdin", false, "read the key from standard input")
	flags.StringVar(&k.file, "key-file", "", "read the key from a file")
	flags.StringVar(&k.env, "key-env", "", "read the key from the environment variable of this name")
	flags.StringArrayVar(&k.secretFiles, "secret-file", nil, "file with an HMAC secret; repeat it for the others of the ring, the current one first")
	flags.StringArrayVar(&k.secretEnvs, "secret-env", nil, "environment variable with an HMAC secret, likewise (default: DAYBOOK_SECRET where that is set)")
	flags.BoolVar(&k.alsoSHA256, "also-sha256", false, "also find what was bound without a secret")
}

// given reports how many sources of a key were named.
func (k *keyFlags) given() int {
	n := 0
	for _, named := range []bool{k.stdin, k.file != "", k.env != ""} {
		if named {
			n++
		}
	}
	return n
}

// key reads the key. One line break at the end of standard input or of a file does not belong to it; whatever else
// there is does.
func (a *app) key(k *keyFlags) (ledger.Key, error) {
	if k.given() != 1 {
		return ledger.Key{}, usagef("a key never stands on the command line, which other users of the machine can see",
			"name one source of the key: --key-stdin, --key-file or --key-env")
	}
	var raw []byte
	var err error
	switch {
	case k.stdin:
		raw, err = readText(a.Stdin, ledger.MaxKeyBytes)
	case k.file != "":
		raw, err = readFile(k.file, ledger.MaxKeyBytes)
	default:
		value, ok := a.LookupEnv(k.env)
		if !ok {
			return ledger.Key{}, usagef("", "--key-env: there is no variable %s", k.env)
		}
		raw = []byte(value)
	}
	if err != nil {
		return ledger.Key{}, fmt.Errorf("read the key: %w", err)
	}
	key := ledger.NewKey(string(raw))
	if problem := ledger.CheckKey(key); problem != "" {
		return ledger.Key{}, usagef("", "the key %s", problem)
	}
	return key, nil
}

// keys returns the ring of secrets that the flags or the environment name; plain SHA-256 where they name none.
func (a *app) keys(k *keyFlags) (ledger.Keys, error) {
	var secrets [][]byte
	for _, name := range k.secretFiles {
		secret, err := readFile(name, maxSecretBytes)
		if err != nil {
			return ledger.Keys{}, fmt.Errorf("read a secret: %w", err)
		}
		secrets = append(secrets, secret)
	}
	for _, name := range k.secretEnvs {
		value, ok := a.LookupEnv(name)
		if !ok {
			return ledger.Keys{}, usagef("", "--secret-env: there is no variable %s", name)
		}
		secrets = append(secrets, []byte(value))
	}
	if len(k.secretFiles) > 0 && len(k.secretEnvs) > 0 {
		return ledger.Keys{}, usagef("which secret is the current one is told by the order of one flag", "use either --secret-file or --secret-env")
	}
	if value, ok := a.LookupEnv(secretVariable); ok && len(secrets) == 0 {
		secrets = append(secrets, []byte(value))
	}
	if len(secrets) == 0 {
		return ledger.Keys{}, nil
	}
	keys, err := ledger.NewHMACKeys(secrets[0], secrets[1:]...)
	if err != nil {
		return ledger.Keys{}, &failure{code: ExitUsage, message: err.Error(), cause: err}
	}
	if k.alsoSHA256 {
		keys = keys.AlsoSHA256()
	}
	return keys, nil
}

// maxSecretBytes bounds what is read of a secret's file, in case it is not one.
const maxSecretBytes = 64 << 10

func readFile(name string, maxBytes int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readText(f, maxBytes)
}

// readText reads a text that may be followed by one line break. A text that is too long comes one byte too long.
func readText(r io.Reader, maxBytes int) ([]byte, error) {
	raw, err := readAtMost(r, maxBytes+len("\r\n")+1)
	if err != nil {
		return nil, err
	}
	if line, ok := bytes.CutSuffix(raw, []byte("\n")); ok {
		raw, _ = bytes.CutSuffix(line, []byte("\r"))
	}
	return raw, nil
}

// readAtMost reads to the end, or so many bytes.
func readAtMost(r io.Reader, maxBytes int) ([]byte, error) {
	if r == nil {
		return nil, errors.New("there is no standard input")
	}
	return io.ReadAll(io.LimitReader(r, int64(maxBytes)))
}
