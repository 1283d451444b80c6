package statestore

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The environment variables with what must not be in a model repository.
const (
	urlVariable      = "STATEFUL_STORE_URL"      // what the URL env stands for; may have credentials
	userVariable     = "STATEFUL_STORE_USER"     // for a URL without credentials
	passwordVariable = "STATEFUL_STORE_PASSWORD" // likewise
)

// Open returns the store of a URL:
//
//	file:/FOLDER               a folder, which is made if it is missing
//	valkey://HOST[:PORT][/DB]  a Valkey or Redis server; redis:// is the same
//	valkeys://HOST[:PORT][/DB] the same over TLS; rediss:// is the same
//	unix:///SOCKET[?db=DB]     the same over a Unix socket
//	env                        the URL in the variable STATEFUL_STORE_URL
//
// Only the URL of the variable may have a user and a password. For one without them
// they come from STATEFUL_STORE_USER and STATEFUL_STORE_PASSWORD. Open checks the URL
// and does not wait for the store: see Store.Check.
func Open(address string) (Store, error) {
	fromEnvironment := address == "env"
	if fromEnvironment {
		if address = os.Getenv(urlVariable); address == "" {
			return nil, fmt.Errorf("open the state store: its URL is env, but the variable %s is not set", urlVariable)
		}
	}
	t, err := parseURL(address)
	if err == nil && t.credentials && !fromEnvironment {
		err = fmt.Errorf("it has a user or a password: set them by the variables %s and %s, or set %s to the URL and use env for it",
			userVariable, passwordVariable, urlVariable)
	}
	if err != nil {
		return nil, fmt.Errorf("open the state store: the URL %q: %w", withoutCredentials(address), err)
	}
	if t.network == "file" {
		return openFolder(t.address), nil
	}
	if !t.credentials {
		t.user, t.password = os.Getenv(userVariable), os.Getenv(passwordVariable)
	}
	return openValkey(t)
}

// A target is what a URL says.
type target struct {
	shown          string         // the URL, as errors name it
	network        string         // file, tcp or unix
	address        string         // the folder, HOST:PORT or the socket
	tlsName        string         // the host that the certificate must be for, or "": no TLS
	roots          *x509.CertPool // of tests; nil: those of the system
	db             int
	user, password string
	credentials    bool // the URL has them
}

// defaultPort is that of Valkey and Redis.
const defaultPort = "6379"

func parseURL(address string) (*target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("it cannot be parsed") // err may quote a part of a password
	}
	t := &target{shown: withoutCredentials(address), credentials: u.User != nil}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	db := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "file":
		folder := u.Path + u.Opaque
		if u.Host != "" || !filepath.IsAbs(folder) || u.RawQuery != "" || u.Fragment != "" {
			return nil, errors.New("want an absolute path, as in file:/var/lib/states")
		}
		t.network, t.address = "file", filepath.Clean(folder)
		return t, nil
	case "unix":
		t.network, t.address, db = "unix", u.Path, u.Query().Get("db")
		if u.Host != "" || u.Path == "" || u.Fragment != "" || u.RawQuery != "" && u.RawQuery != "db="+db {
			return nil, errors.New("want the path of a socket, as in unix:///run/valkey.sock?db=0")
		}
	case "valkeys", "rediss":
		t.tlsName = u.Hostname()
		fallthrough
	case "valkey", "redis":
		t.network, t.address = "tcp", u.Host
		if u.Port() == "" {
			t.address = net.JoinHostPort(u.Hostname(), defaultPort)
		}
		if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
			return nil, fmt.Errorf("its port is %q: want 1 to 65535", u.Port())
		}
		if u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, errors.New("want a host, and nothing but a port and a database after it, as in valkey://localhost:6379/0")
		}
	default:
		return nil, errors.New("want one that begins with file:, valkey://, valkeys://, redis://, rediss:// or unix://")
	}
	if t.db, err = strconv.Atoi(db); db != "" && (err != nil || t.db < 0) {
		return nil, fmt.Errorf("its database is %q: want a number such as 0", db)
	}
	return t, nil
}

// withoutCredentials is what an error may show of a URL. It also finds the user and
// the password in one that cannot be parsed.
func withoutCredentials(address string) string {
	scheme, rest, found := strings.Cut(address, ":")
	if !found {
		return address
	}
	if end := strings.LastIndex(rest, "@"); end >= 0 {
		rest = "//" + rest[end+1:]
	}
	return scheme + ":" + rest
}
